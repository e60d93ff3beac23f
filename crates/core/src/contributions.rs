//! Contributions of features to margins, as an engine computes them.

use crate::Tensor;

/// The size of the contributions of one row, which is known before they are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContributionSize {
    /// Margins of a row.
    pub margins: usize,
    /// Columns that have a contribution to each margin. A margin has a base value beside them.
    pub columns: usize,
    /// True if the columns are some of those of sparse rows and are called by their ids.
    pub by_id: bool,
}

impl ContributionSize {
    /// The number of values of a row.
    pub fn of_row(&self) -> usize {
        self.margins.saturating_mul(self.columns.saturating_add(1))
    }

    /// The number of ids of columns.
    pub fn ids(&self) -> usize {
        if self.by_id { self.columns } else { 0 }
    }
}

/// The contributions to the margins of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Float32 `[rows, margins, columns + 1]`: the contributions of the columns, and behind them
    /// the base value.
    pub values: Tensor,
    /// The ids of the columns, ascending, if the rows are sparse. Without them the columns are those
    /// of all inputs.
    pub columns: Option<Vec<u64>>,
}
