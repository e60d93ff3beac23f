//! Rows of which neighbours are often equal: those of one user, without the treatment.

use std::{borrow::Cow, ops::Range};

/// Rows without those that are equal to the one before.
pub(super) struct Distinct {
    /// For each row, the number of its equal among those that are kept.
    pub(super) of_rows: Vec<usize>,
    /// The rows that are kept.
    pub(super) kept: Vec<usize>,
}

impl Distinct {
    /// Compares rows of `width` columns, of which only `compared` count.
    pub(super) fn new(rows: &[f32], width: usize, compared: &[Range<usize>]) -> Self {
        let count = rows.len().checked_div(width).unwrap_or(0);
        let mut distinct = Self { of_rows: Vec::with_capacity(count), kept: Vec::new() };
        let row = |at: usize| &rows[at * width..][..width];
        for at in 0..count {
            let is_equal = |last: &usize| {
                let (last, row) = (row(*last), row(at));
                compared.iter().all(|part| equal(&last[part.clone()], &row[part.clone()]))
            };
            if !distinct.kept.last().is_some_and(is_equal) {
                distinct.kept.push(at);
            }
            distinct.of_rows.push(distinct.kept.len() - 1);
        }
        distinct
    }

    /// The rows that are kept. They are not copied if they are all.
    pub(super) fn rows<'r>(&self, rows: &'r [f32], width: usize) -> Cow<'r, [f32]> {
        if self.kept.len() == self.of_rows.len() {
            return Cow::Borrowed(rows);
        }
        Cow::Owned(gathered(rows, width, &self.kept))
    }

    /// The elements of each row, from an array with `width` elements for each row that is kept.
    pub(super) fn spread(&self, values: &[f32], width: usize) -> Vec<f32> {
        gathered(values, width, &self.of_rows)
    }
}

/// The rows with these numbers.
pub(super) fn gathered(rows: &[f32], width: usize, numbers: &[usize]) -> Vec<f32> {
    let mut all = Vec::with_capacity(width * numbers.len());
    numbers.iter().for_each(|number| all.extend_from_slice(&rows[number * width..][..width]));
    all
}

/// True if all bits are equal. Without an early end, so that vectors of numbers are compared.
fn equal(a: &[f32], b: &[f32]) -> bool {
    let difference = |(a, b): (&f32, &f32)| a.to_bits() ^ b.to_bits();
    a.iter().zip(b).map(difference).fold(0, |all, bits| all | bits) == 0
}
