//! Rows of which neighbours are often equal: those of one user, without the treatment.

use std::{borrow::Cow, ops::Range};

use crate::cell::Cell;

/// Rows without those that are equal to the one before.
pub(super) struct Distinct {
    /// For each row, the number of its equal among those that are kept.
    pub(super) of_rows: Vec<usize>,
    /// The rows that are kept.
    pub(super) kept: Vec<usize>,
}

impl Distinct {
    /// Compares rows of `width` columns, of which only `compared` count.
    pub(super) fn new<T: Cell>(rows: &[T], width: usize, compared: &[Range<usize>]) -> Self {
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
    pub(super) fn rows<'r, T: Cell>(&self, rows: &'r [T], width: usize) -> Cow<'r, [T]> {
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
pub(super) fn gathered<T: Copy>(rows: &[T], width: usize, numbers: &[usize]) -> Vec<T> {
    let mut all = Vec::with_capacity(width * numbers.len());
    numbers.iter().for_each(|number| all.extend_from_slice(&rows[number * width..][..width]));
    all
}

/// True if all bits are equal. Without an early end, so that vectors of numbers are compared.
fn equal<T: Cell>(a: &[T], b: &[T]) -> bool {
    let difference = |(a, b): (&T, &T)| a.bits() ^ b.bits();
    a.iter().zip(b).map(difference).fold(T::Bits::default(), |all, bits| all | bits)
        == T::Bits::default()
}
