//! Input and output of a prediction.

use std::ops::Range;

use crate::{
    SparseRows,
    ranks::Ranks,
    slots::{Placed, Slots},
};

/// Dense rows of features, one after the other. NaN is a missing value; infinities are values like
/// any other. A row that is narrower than the model lacks the last features, and columns beyond the
/// model's are ignored. Values of f64 are compared as the model's library compares them: exactly by
/// a model of LightGBM that [`Model::read_for_f64`](crate::Model::read_for_f64) has read, else
/// rounded to f32.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T = f32> {
    values: &'a [T],
    width: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Rows of `width` columns each. None unless `values` consists of whole rows.
    pub fn new(values: &'a [T], width: usize) -> Option<Self> {
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

    /// The values of all rows.
    pub(crate) fn values(&self) -> &'a [T] {
        self.values
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [T]> {
        self.values.chunks_exact(self.width.max(1))
    }

    /// Some of the rows.
    pub(crate) fn slice(self, rows: Range<usize>) -> Self {
        Self { values: &self.values[rows.start * self.width..rows.end * self.width], ..self }
    }

    /// The row `at`.
    pub(crate) fn row(&self, at: usize) -> &'a [T] {
        &self.values[at * self.width..][..self.width]
    }
}

/// Rows of either form.
#[derive(Debug, Clone, Copy)]
pub enum AnyRows<'a> {
    /// A value for each feature.
    Dense(Rows<'a>),
    /// A value for each feature, in f64.
    Doubles(Rows<'a, f64>),
    /// Some features, each with its value.
    Sparse(SparseRows<'a>),
}

impl AnyRows<'_> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Dense(rows) => rows.len(),
            Self::Doubles(rows) => rows.len(),
            Self::Sparse(rows) => rows.len(),
        }
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a feature in the row `at`. NaN is missing.
    pub(crate) fn value(&self, at: usize, feature: usize) -> f64 {
        let value = match self {
            Self::Dense(rows) => rows.row(at).get(feature).map(|value| f64::from(*value)),
            Self::Doubles(rows) => rows.row(at).get(feature).copied(),
            Self::Sparse(rows) => {
                let is_of = |(id, value): &(u64, f32)| *id == feature as u64 && !value.is_nan();
                rows.row(at).filter(is_of).last().map(|(_, value)| value.into())
            }
        };
        value.unwrap_or(f64::NAN)
    }
}

impl<'a> From<Rows<'a>> for AnyRows<'a> {
    fn from(rows: Rows<'a>) -> Self {
        Self::Dense(rows)
    }
}

impl<'a> From<Rows<'a, f64>> for AnyRows<'a> {
    fn from(rows: Rows<'a, f64>) -> Self {
        Self::Doubles(rows)
    }
}

impl<'a> From<SparseRows<'a>> for AnyRows<'a> {
    fn from(rows: SparseRows<'a>) -> Self {
        Self::Sparse(rows)
    }
}

/// Rows as a model takes them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    Dense(Rows<'a>),
    /// Sparse rows, and the slots of their features that splits use.
    Sparse(Placed<'a>),
}

/// Memory of rows as a model takes them.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The slots of the ids of sparse rows.
    found: Vec<u32>,
    /// Values in place of those of the rows.
    values: Vec<f32>,
}

impl<'a> Input<'a> {
    /// The rows of a model whose splits use the features of `slots`, and compare what stands for
    /// values in `ranks`, if there are any. `counted` is the number of its features if it is one of
    /// XGBoost, which counts the entries of a sparse row.
    pub(crate) fn new(
        rows: AnyRows<'a>,
        slots: &'a Slots,
        ranks: Option<&Ranks>,
        counted: Option<usize>,
        Memory { found, values }: &'a mut Memory,
    ) -> Self {
        let width = match (rows, ranks) {
            (AnyRows::Sparse(rows), None) => {
                return Self::Sparse(slots.place(rows, counted, found));
            }
            (AnyRows::Sparse(rows), Some(ranks)) => {
                *values = ranks.of_weights(rows);
                return Self::Sparse(slots.place(rows.with_weights(values), counted, found));
            }
            (AnyRows::Dense(rows), None) => return Self::Dense(rows),
            (AnyRows::Dense(rows), Some(ranks)) => {
                *values = ranks.of_rows(rows);
                rows.width
            }
            (AnyRows::Doubles(rows), Some(ranks)) => {
                *values = ranks.of_rows(rows);
                rows.width
            }
            (AnyRows::Doubles(rows), None) => {
                values.extend(rows.values.iter().map(|value| *value as f32));
                rows.width
            }
        };
        Self::Dense(Rows { values, width })
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Dense(rows) => rows.len(),
            Self::Sparse(rows) => rows.len(),
        }
    }

    /// Some of the rows.
    pub(crate) fn slice(self, some: Range<usize>) -> Self {
        match self {
            Self::Dense(rows) => Self::Dense(rows.slice(some)),
            Self::Sparse(rows) => Self::Sparse(rows.slice(some)),
        }
    }

    /// Calls `visit` with the number of each row, and the row.
    pub(crate) fn for_each(self, visit: impl FnMut(usize, Row<'_>)) {
        self.for_each_of(0..self.len(), visit);
    }

    /// Calls `visit` with the number of each of some rows, and the row.
    pub(crate) fn for_each_of(self, some: Range<usize>, mut visit: impl FnMut(usize, Row<'_>)) {
        match self {
            Self::Dense(rows) => some.for_each(|at| visit(at, Row::Dense(rows.row(at)))),
            Self::Sparse(rows) => {
                let mut values = vec![f32::NAN; rows.slots.len()];
                for at in some {
                    rows.entries(at).for_each(|(slot, value)| values[slot] = value);
                    visit(at, Row::Slots(rows.slots, &values));
                    rows.entries(at).for_each(|(slot, _)| values[slot] = f32::NAN);
                }
            }
        }
    }
}

/// One row, of either form.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row<'a> {
    /// The value of each feature.
    Dense(&'a [f32]),
    /// The slots of features, and the value of each slot.
    Slots(&'a Slots, &'a [f32]),
}

impl Row<'_> {
    /// The value of a feature. NaN is missing.
    pub(crate) fn value(self, feature: usize) -> f32 {
        let value = match self {
            Self::Dense(row) => row.get(feature),
            Self::Slots(slots, row) => slots.get(feature as u64).map(|slot| &row[slot]),
        };
        value.copied().unwrap_or(f32::NAN)
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
        assert_eq!(Rows::<f32>::new(&[], 0).map(|rows| rows.len()), Some(0));
        assert_eq!(Rows::<f32>::new(&[], 3).map(|rows| rows.iter().count()), Some(0));
    }
}
