//! Input and output of a prediction.

use std::ops::Range;

/// Dense rows of features, one after the other. NaN is a missing value; infinities are values like
/// any other. A row that is narrower than the model lacks the last features, and columns beyond the
/// model's are ignored.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    values: &'a [f32],
    width: usize,
}

impl<'a> Rows<'a> {
    /// Rows of `width` columns each. None unless `values` consists of whole rows.
    pub fn new(values: &'a [f32], width: usize) -> Option<Self> {
        let whole = values.len().checked_rem(width).unwrap_or(values.len()) == 0;
        whole.then_some(Self { values, width })
    }

    /// The number of rows. Rows without columns cannot be counted: there are none.
    pub fn len(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Columns of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.width.max(1))
    }
}

/// The result of a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// The prediction, after the transformation of the objective as it was in the version of the
    /// library that wrote the file: since XGBoost 3.4 quantiles are sorted.
    #[default]
    Value,
    /// The sum of base score and leaves, before the transformation of the objective.
    Margin,
    /// The node of each tree in which the row ends, with the number that it has in the file. As
    /// f32, numbers from 2^24 on are not exact: see [`Model::leaves`](crate::Model::leaves).
    Leaf,
}

/// Settings of a prediction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The result that is wanted.
    pub output: Output,
    /// The boosting iterations whose trees count. Iterations that the model does not have are
    /// ignored. None are all.
    pub iterations: Option<Range<u32>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_must_be_whole() {
        assert!(Rows::new(&[1.0; 5], 2).is_none());
        assert!(Rows::new(&[1.0; 5], 0).is_none());
        assert_eq!(Rows::new(&[1.0; 6], 2).map(|rows| rows.len()), Some(3));
        assert_eq!(Rows::new(&[], 0).map(|rows| rows.len()), Some(0));
        assert_eq!(Rows::new(&[], 3).map(|rows| rows.iter().count()), Some(0));
    }
}
