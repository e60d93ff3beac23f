//! Sparse rows.

use std::{fmt, ops::Range};

/// Sparse rows in compressed form: the ids and weights of all rows, one row after the other, and
/// the place at which each row begins.
///
/// An id may occur more than once in a row, in any order. For trees, an id is the number of a
/// feature: the last weight of an id counts, one that is NaN is missing, a feature without an id
/// is missing too, and a weight of 0 is a value. Ids that are no features of a model are ignored.
#[derive(Debug, Clone, Copy)]
pub struct SparseRows<'a> {
    ids: &'a [u64],
    weights: &'a [f32],
    offsets: &'a [u32],
    /// The bits of an id that count.
    mask: u64,
}

impl<'a> SparseRows<'a> {
    /// Rows with an offset each into `ids` and `weights`, and a last offset, which is their length.
    ///
    /// # Errors
    /// [`SparseError`] if the lengths differ, or the offsets do not divide all entries into rows.
    pub fn new(
        ids: &'a [u64],
        weights: &'a [f32],
        offsets: &'a [u32],
    ) -> Result<Self, SparseError> {
        if ids.len() != weights.len() {
            return Err(SparseError::Weights { ids: ids.len(), weights: weights.len() });
        }
        let ends = (offsets.first(), offsets.last().map(|end| *end as usize));
        if ends != (Some(&0), Some(ids.len())) || !offsets.is_sorted() {
            return Err(SparseError::Offsets);
        }
        Ok(Self { ids, weights, offsets, mask: u64::MAX })
    }

    /// The same rows with the lower 32 bits of each id, as XGBoost Serving passes them to XGBoost.
    #[must_use]
    pub fn truncated(self) -> Self {
        Self { mask: u32::MAX.into(), ..self }
    }

    /// Some of the rows.
    ///
    /// # Panics
    /// Panics if there are no such rows.
    #[must_use]
    pub fn slice(self, rows: Range<usize>) -> Self {
        Self { offsets: &self.offsets[rows.start..=rows.end], ..self }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ids and weights of the row `at`.
    ///
    /// # Panics
    /// Panics if there is no such row.
    #[inline]
    pub fn row(&self, at: usize) -> impl Iterator<Item = (u64, f32)> + use<'a> {
        let (entries, mask) = (self.offsets[at] as usize..self.offsets[at + 1] as usize, self.mask);
        let ids = self.ids[entries.clone()].iter().map(move |id| *id & mask);
        ids.zip(self.weights[entries].iter().copied())
    }

    /// The row and the id of the first infinite weight. Trees compare it like any other number, but
    /// XGBoost refuses such rows.
    pub fn infinite(&self) -> Option<(usize, u64)> {
        let [first, end] = [self.offsets[0], self.offsets[self.len()]].map(|at| at as usize);
        let found = self.weights[first..end].iter().position(|weight| weight.is_infinite());
        let at = first + found?;
        let row = self.offsets.partition_point(|offset| *offset as usize <= at) - 1;
        Some((row, self.ids[at]))
    }
}

/// The reasons why arrays are not sparse rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseError {
    /// There is not one weight for each id.
    Weights {
        /// The number of ids.
        ids: usize,
        /// The number of weights.
        weights: usize,
    },
    /// The offsets do not ascend from 0 to the number of ids.
    Offsets,
}

impl fmt::Display for SparseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weights { ids, weights } => {
                write!(f, "there are {weights} weights for {ids} ids")
            }
            Self::Offsets => f.write_str("the offsets do not ascend from 0 to the number of ids"),
        }
    }
}

impl std::error::Error for SparseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_must_be_whole_rows() {
        let rows = |offsets| SparseRows::new(&[7, 8, 7], &[1.0; 3], offsets).map(|rows| rows.len());
        assert_eq!(rows(&[0, 2, 2, 3]), Ok(3));
        for offsets in [&[] as &[u32], &[0], &[0, 2], &[1, 3], &[0, 3, 2, 3], &[0, 4]] {
            assert_eq!(rows(offsets), Err(SparseError::Offsets), "{offsets:?}");
        }
        let none = SparseRows::new(&[], &[], &[0]).expect("no rows");
        assert!(none.is_empty() && none.infinite().is_none());
        let error = SparseRows::new(&[7], &[], &[0, 1]).expect_err("no weight");
        assert_eq!(error, SparseError::Weights { ids: 1, weights: 0 });
    }

    #[test]
    fn some_of_the_rows_are_rows() {
        let weights = [1.0, 2.0, f32::INFINITY];
        let rows = SparseRows::new(&[7, 1 << 32, 9], &weights, &[0, 1, 1, 3]).expect("rows");
        assert_eq!(rows.infinite(), Some((2, 9)));
        let some = rows.slice(1..3);
        assert_eq!((some.len(), some.infinite()), (2, Some((1, 9))));
        assert_eq!(some.row(1).collect::<Vec<_>>(), [(1 << 32, 2.0), (9, f32::INFINITY)]);
        assert_eq!(some.truncated().row(1).next(), Some((0, 2.0)));
        assert_eq!(rows.slice(0..2).infinite(), None);
    }
}
