//! Input and output of scoring.

use std::{fmt, ops::Range};

/// Sparse rows in compressed form: the ids and weights of all rows, one row after the other, and
/// the place at which each row begins. An id may occur more than once in a row.
#[derive(Debug, Clone, Copy)]
pub struct SparseRows<'a> {
    ids: &'a [u64],
    weights: &'a [f32],
    offsets: &'a [u32],
}

impl<'a> SparseRows<'a> {
    /// Rows with an offset each into `ids` and `weights`, and a last offset, which is their length.
    ///
    /// # Errors
    /// [`RowsError`] if the lengths differ, or the offsets do not divide all entries into rows.
    pub fn new(ids: &'a [u64], weights: &'a [f32], offsets: &'a [u32]) -> Result<Self, RowsError> {
        if ids.len() != weights.len() {
            return Err(RowsError::Weights { ids: ids.len(), weights: weights.len() });
        }
        let ends = (offsets.first(), offsets.last().map(|end| *end as usize));
        if ends != (Some(&0), Some(ids.len())) || !offsets.is_sorted() {
            return Err(RowsError::Offsets);
        }
        Ok(Self { ids, weights, offsets })
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
    pub(crate) fn row(&self, at: usize) -> impl Iterator<Item = (u64, f32)> + use<'a> {
        let entries = self.entries(at..at + 1);
        self.ids[entries.clone()].iter().copied().zip(self.weights[entries].iter().copied())
    }

    fn entries(&self, rows: Range<usize>) -> Range<usize> {
        self.offsets[rows.start] as usize..self.offsets[rows.end] as usize
    }

    /// The row of the entry `at`.
    fn row_of(&self, at: usize) -> usize {
        self.offsets.partition_point(|offset| *offset as usize <= at) - 1
    }
}

/// The rows of a request. Each has two parts, as XGBoost Serving has it.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Features of the trees and of the factorisation machine.
    pub(crate) trees: SparseRows<'a>,
    /// Features of the factorisation machine alone.
    pub(crate) fm: SparseRows<'a>,
}

impl<'a> Rows<'a> {
    /// Rows with features for trees and machine (`xgboost_features` of XGBoost Serving), and with
    /// features for the machine alone (`fm_features`).
    ///
    /// # Errors
    /// [`RowsError`] if the numbers of rows differ, or a weight in `trees` is infinite: XGBoost
    /// refuses such rows. NaN is a missing value.
    pub fn new(trees: SparseRows<'a>, fm: SparseRows<'a>) -> Result<Self, RowsError> {
        if trees.len() != fm.len() {
            return Err(RowsError::Rows { trees: trees.len(), fm: fm.len() });
        }
        match trees.weights.iter().position(|weight| weight.is_infinite()) {
            Some(at) => Err(RowsError::Infinite { row: trees.row_of(at), id: trees.ids[at] }),
            None => Ok(Self { trees, fm }),
        }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.trees.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }
}

/// The reasons why arrays are not rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsError {
    /// There is not one weight for each id.
    Weights {
        /// The number of ids.
        ids: usize,
        /// The number of weights.
        weights: usize,
    },
    /// The offsets do not ascend from 0 to the number of ids.
    Offsets,
    /// The two parts of the rows differ in the number of rows.
    Rows {
        /// Rows with features of the trees.
        trees: usize,
        /// Rows with features of the factorisation machine.
        fm: usize,
    },
    /// A feature of the trees is infinite.
    Infinite {
        /// The row, counted from 0.
        row: usize,
        /// The feature.
        id: u64,
    },
}

impl fmt::Display for RowsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weights { ids, weights } => {
                write!(f, "there are {weights} weights for {ids} ids")
            }
            Self::Offsets => f.write_str("the offsets do not ascend from 0 to the number of ids"),
            Self::Rows { trees, fm } => {
                write!(f, "there are {trees} rows for the trees and {fm} for the FM")
            }
            Self::Infinite { row, id } => write!(f, "row {row}: the feature {id} is infinite"),
        }
    }
}

impl std::error::Error for RowsError {}

/// The result of scoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// The probability of each class; of the positive one, if the model is binary.
    #[default]
    Value,
    /// The sums before they are turned into probabilities.
    Margin,
}

/// The numbers in which sums are taken. Weights and scores are f32 in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// f32, in the order of XGBoost Serving.
    #[default]
    Single,
    /// f64, as alphaFM does.
    Double,
}

/// Settings of scoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The result that is wanted.
    pub output: Output,
    /// The precision of the sums.
    pub precision: Precision,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_must_be_whole_rows() {
        let rows = |offsets| SparseRows::new(&[7, 8, 7], &[1.0; 3], offsets).map(|rows| rows.len());
        assert_eq!(rows(&[0, 2, 2, 3]), Ok(3));
        for offsets in [&[] as &[u32], &[0], &[0, 2], &[1, 3], &[0, 3, 2, 3], &[0, 4]] {
            assert_eq!(rows(offsets), Err(RowsError::Offsets), "{offsets:?}");
        }
        let none = SparseRows::new(&[], &[], &[0]).expect("no rows");
        assert!(none.is_empty());
        let error = SparseRows::new(&[7], &[], &[0, 1]).expect_err("no weight");
        assert_eq!(error, RowsError::Weights { ids: 1, weights: 0 });
    }

    #[test]
    fn both_parts_have_the_same_rows() {
        let one = SparseRows::new(&[7], &[1.0], &[0, 1]).expect("a row");
        let two = SparseRows::new(&[7], &[1.0], &[0, 1, 1]).expect("two rows");
        assert_eq!(Rows::new(one, two).expect_err("1 row"), RowsError::Rows { trees: 1, fm: 2 });
        assert_eq!(Rows::new(two, two).map(|rows| rows.len()), Ok(2));
    }

    #[test]
    fn infinite_features_of_trees_are_refused() {
        let weights = [1.0, f32::NAN, f32::NEG_INFINITY];
        let rows = SparseRows::new(&[7, 8, 9], &weights, &[0, 2, 2, 3]).expect("rows");
        let none = SparseRows::new(&[], &[], &[0; 4]).expect("empty rows");
        let error = Rows::new(rows, none).expect_err("infinity");
        assert_eq!(error, RowsError::Infinite { row: 2, id: 9 });
        assert!(Rows::new(none, rows).is_ok());
    }
}
