//! Input and output of scoring.

use std::fmt;

use outrigger_trees::SparseRows;

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
        match trees.infinite() {
            Some((row, id)) => Err(RowsError::Infinite { row, id }),
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

/// The reasons why sparse rows are not the rows of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsError {
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
