//! The differences of one score column.

use std::collections::BTreeSet;

use arrow_schema::Field;
use outrigger_core::rank;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    join::{Side, Sink},
    layout::{Columns, Row},
    rank::correlation,
    sort::Sorter,
    spill::failed,
    values::{self, Kind, number, numbers},
};
use crate::Error;

/// The most values of a list whose ranks are compared.
const RANKED: usize = 4096;

/// Values that differ by no more than `atol + rtol * |a|` agree.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tolerance {
    /// The absolute part.
    pub atol: f64,
    /// The part that is relative to the first value.
    pub rtol: f64,
}

/// The differences of a score column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColumnDifference {
    /// The name of the column.
    pub column: String,
    /// The number of compared values. Lists are compared value by value.
    pub values: u64,
    /// The number of values that differ by more than the tolerance, `unequal` ones among them.
    pub differing: u64,
    /// The number of values that differ, but not by a number: one is absent, NaN or another
    /// infinity than the other, lists have different lengths, or they are texts or booleans. An
    /// absent value equals an absent one, and NaN equals NaN.
    pub unequal: u64,
    /// The largest absolute difference, without unequal values.
    pub largest: f64,
    /// The mean of the absolute differences, without unequal values.
    pub mean: f64,
    /// Spearman's rank correlation of the values of all rows; of lists, the mean of those within a
    /// row. `None` if it is not defined.
    pub rank_correlation: Option<f64>,
    /// The lowest rank correlation within a row of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lowest_rank_correlation: Option<f64>,
    /// The largest differences, the largest first; unequal values before all others.
    pub worst: Vec<Worst>,
}

/// A value that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// The values of the key columns.
    pub key: Map<String, Value>,
    /// The position in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The value in the first output. Numbers that are not finite are texts.
    pub a: Value,
    /// The value in the second output.
    pub b: Value,
    /// The absolute difference; `None` of unequal values.
    pub difference: Option<f64>,
}

/// The comparison of rows in pairs.
pub(crate) struct Comparison {
    keys: Vec<Field>,
    columns: Vec<Column>,
    /// The most rows that are listed.
    listed: usize,
    pub(crate) rows: u64,
    /// The rows that only one output has, and some of their keys.
    pub(crate) only: [(u64, BTreeSet<Box<[u8]>>); 2],
}

/// The comparison of one column.
struct Column {
    kind: Kind,
    found: ColumnDifference,
    tolerance: Tolerance,
    /// The number of differences in the mean.
    numbers: u64,
    /// The pairs whose ranks are compared; those of lists within a row are compared at once.
    pairs: Sorter,
    /// The number of rows with a list whose ranks were compared.
    lists: u64,
    worst: Vec<(f64, Found)>,
    listed: usize,
}

/// A difference before it is shown.
struct Found {
    key: Box<[u8]>,
    index: Option<usize>,
    a: Value,
    b: Value,
}

impl Comparison {
    /// A comparison of these columns, whose keys have these types. Of each column, `listed` values
    /// are named. Ranks are sorted in `memory` bytes.
    pub(crate) fn new(
        columns: &Columns,
        keys: Vec<Field>,
        (listed, tolerance): (usize, Tolerance),
        memory: u64,
    ) -> Self {
        let memory = memory / columns.scores.len().max(1) as u64;
        let column = |(name, kind): &(String, Kind)| Column {
            kind: *kind,
            found: ColumnDifference {
                column: name.clone(),
                values: 0,
                differing: 0,
                unequal: 0,
                largest: 0.0,
                mean: 0.0,
                rank_correlation: None,
                lowest_rank_correlation: None,
                worst: Vec::new(),
            },
            tolerance,
            numbers: 0,
            pairs: Sorter::new(memory),
            lists: 0,
            worst: Vec::new(),
            listed,
        };
        let columns = columns.scores.iter().map(column).collect();
        Self { keys, columns, listed, rows: 0, only: Default::default() }
    }

    /// The columns' differences.
    ///
    /// # Errors
    /// A temporary file cannot be written or read.
    pub(crate) fn finish(self) -> Result<Vec<ColumnDifference>, Error> {
        let keys = self.keys;
        self.columns.into_iter().map(|column| column.finish(&keys)).collect()
    }

    /// The keys of rows that only one output has.
    pub(crate) fn only_keys(&self, side: usize) -> Vec<Map<String, Value>> {
        self.only[side].1.iter().map(|key| values::key(&self.keys, key)).collect()
    }
}

impl Sink for Comparison {
    fn pair(&mut self, a: &Row, b: &Row) -> Result<(), Error> {
        self.rows += 1;
        let scores = values::split(&a.scores).zip(values::split(&b.scores));
        for (column, (of_a, of_b)) in self.columns.iter_mut().zip(scores) {
            column.compare(&a.key, of_a, of_b)?;
        }
        Ok(())
    }

    fn only(&mut self, side: Side, row: &Row) {
        let (count, keys) = &mut self.only[usize::from(side == Side::B)];
        *count += 1;
        // The first ones in the order of their bytes: rows come in any order.
        if keys.len() < self.listed || keys.last().is_some_and(|last| *last > row.key) {
            keys.insert(row.key.clone());
            if keys.len() > self.listed {
                keys.pop_last();
            }
        }
    }
}

impl Column {
    fn compare(&mut self, key: &[u8], a: Option<&[u8]>, b: Option<&[u8]>) -> Result<(), Error> {
        let (values_a, values_b) = match (self.kind, a, b) {
            (_, None, None) => {
                self.found.values += 1;
                return Ok(());
            }
            (Kind::Number { .. }, Some(a), Some(b)) if a.len() == b.len() => (a, b),
            (Kind::Other, Some(a), Some(b)) if a == b => {
                self.found.values += 1;
                return Ok(());
            }
            _ => {
                self.found.values += 1;
                let kind = self.kind;
                self.unequal(key, None, || (kind.shown(a), kind.shown(b)));
                return Ok(());
            }
        };
        let is_list = self.kind == Kind::Number { is_list: true };
        for (index, (a, b)) in numbers(values_a).zip(numbers(values_b)).enumerate() {
            self.number(key, is_list.then_some(index), (a, b));
            if !is_list && !a.is_nan() && !b.is_nan() {
                self.pairs.push((a, b)).map_err(|error| failed(&error))?;
            }
        }
        if is_list {
            self.list(values_a, values_b);
        }
        Ok(())
    }

    /// Compares the ranks within a list.
    fn list(&mut self, a: &[u8], b: &[u8]) {
        if numbers(a).len() > RANKED {
            return;
        }
        let pairs: Vec<_> = numbers(a).zip(numbers(b)).collect();
        let Some(found) = rank::correlation(&pairs) else { return };
        self.lists += 1;
        let mean = self.found.rank_correlation.get_or_insert(0.0);
        *mean += (found - *mean) / self.lists as f64;
        let lowest = self.found.lowest_rank_correlation.get_or_insert(found);
        *lowest = lowest.min(found);
    }

    fn number(&mut self, key: &[u8], index: Option<usize>, (a, b): (f64, f64)) {
        self.found.values += 1;
        if a == b || (a.is_nan() && b.is_nan()) {
            return self.mean(0.0);
        }
        let difference = (a - b).abs();
        if !difference.is_finite() {
            return self.unequal(key, index, || (number(a), number(b)));
        }
        self.mean(difference);
        let Tolerance { atol, rtol } = self.tolerance;
        self.found.differing += u64::from(difference > atol + rtol * a.abs());
        self.found.largest = self.found.largest.max(difference);
        self.list_worst(difference, key, index, || (number(a), number(b)));
    }

    fn mean(&mut self, difference: f64) {
        self.numbers += 1;
        self.found.mean += (difference - self.found.mean) / self.numbers as f64;
    }

    fn unequal(
        &mut self,
        key: &[u8],
        index: Option<usize>,
        shown: impl FnOnce() -> (Value, Value),
    ) {
        self.found.differing += 1;
        self.found.unequal += 1;
        self.list_worst(f64::INFINITY, key, index, shown);
    }

    /// Lists a difference if it is among the largest. The first of equal ones stays.
    fn list_worst(
        &mut self,
        difference: f64,
        key: &[u8],
        index: Option<usize>,
        shown: impl FnOnce() -> (Value, Value),
    ) {
        let at = self.worst.partition_point(|(other, _)| *other >= difference);
        if at < self.listed {
            let (a, b) = shown();
            self.worst.insert(at, (difference, Found { key: key.into(), index, a, b }));
            self.worst.truncate(self.listed);
        }
    }

    fn finish(self, keys: &[Field]) -> Result<ColumnDifference, Error> {
        let Self { kind, mut found, pairs, worst, .. } = self;
        if kind == (Kind::Number { is_list: false }) {
            found.rank_correlation = correlation(pairs).map_err(|error| failed(&error))?;
        }
        let shown = |(difference, Found { key, index, a, b }): (f64, Found)| Worst {
            key: values::key(keys, &key),
            index,
            a,
            b,
            difference: Some(difference).filter(|it| it.is_finite()),
        };
        found.worst = worst.into_iter().map(shown).collect();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        Array as _, ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, ListArray,
        RecordBatch, StringArray, types::Float64Type,
    };
    use arrow_schema::DataType as ArrowType;

    use super::*;

    /// Compares two columns of scores, whose keys are the numbers of the rows.
    fn compared(a: ArrayRef, b: ArrayRef, tolerance: Tolerance) -> ColumnDifference {
        let kind = Kind::of(a.data_type());
        let columns = Columns { keys: vec!["id".to_owned()], scores: vec![("s".to_owned(), kind)] };
        let rows = |scores: ArrayRef| {
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..scores.len() as i64));
            let table = RecordBatch::try_from_iter([("id", ids), ("s", scores)]);
            columns.rows(&table.expect("a table")).expect("rows")
        };
        let keys = vec![Field::new("id", ArrowType::Int64, false)];
        let mut comparison = Comparison::new(&columns, keys, (3, tolerance), 1 << 20);
        for (a, b) in rows(a).iter().zip(&rows(b)) {
            comparison.pair(a, b).expect("compared");
        }
        comparison.finish().expect("finished").remove(0)
    }

    fn exact(a: ArrayRef, b: ArrayRef) -> ColumnDifference {
        compared(a, b, Tolerance::default())
    }

    fn ids(found: &ColumnDifference) -> Vec<i64> {
        found.worst.iter().map(|worst| worst.key["id"].as_i64().expect("an id")).collect()
    }

    #[test]
    fn differences_are_counted_and_the_largest_listed() {
        let a: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0, 4.0, 5.0]));
        let b: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.5, 3.0, 8.0, 4.0]));
        let found = exact(Arc::clone(&a), Arc::clone(&b));
        assert_eq!((found.values, found.differing, found.unequal), (5, 3, 0));
        assert!(found.largest == 4.0 && (found.mean - 1.1).abs() < 1e-12, "{}", found.mean);
        assert_eq!(ids(&found), [3, 4, 1]);
        assert_eq!(found.worst[0].difference, Some(4.0));
        // Ranks 1 to 5 against 1, 2, 3, 5, 4: 1 - 6 * 2 / (5 * 24).
        let correlation = found.rank_correlation.expect("defined");
        assert!((correlation - 0.9).abs() < 1e-12, "{correlation}");
        let within = compared(a, b, Tolerance { atol: 0.5, rtol: 0.1 });
        assert_eq!(within.differing, 1, "0.5 and 1.0 are within 0.5 + 0.1 x |a|");
    }

    #[test]
    fn values_that_are_no_numbers_are_equal_to_their_like_only() {
        let (nan, infinity) = (Some(f64::NAN), Some(f64::INFINITY));
        let a = vec![nan, None, infinity, nan, None, infinity, infinity];
        let b = vec![nan, None, infinity, Some(1.0), Some(1.0), Some(1.0), Some(-f64::INFINITY)];
        let found = exact(Arc::new(Float64Array::from(a)), Arc::new(Float64Array::from(b)));
        assert_eq!((found.values, found.differing, found.unequal), (7, 4, 4));
        assert_eq!((found.largest, found.mean), (0.0, 0.0));
        assert_eq!(ids(&found), [3, 4, 5]);
        let shown: Vec<_> = found.worst.iter().map(|worst| worst.a.to_string()).collect();
        assert_eq!(shown, ["\"NaN\"", "null", "\"inf\""]);
    }

    #[test]
    fn lists_are_compared_value_by_value() {
        let lists = |lists: Vec<Vec<f64>>| -> ArrayRef {
            let lists = lists.into_iter().map(|list| Some(list.into_iter().map(Some)));
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists))
        };
        let a = lists(vec![vec![1.0, 2.0, 3.0], vec![1.0, 2.0], vec![1.0]]);
        let b = lists(vec![vec![1.0, 2.0, 5.0], vec![2.0, 1.0], vec![1.0, 2.0]]);
        let found = exact(a, b);
        assert_eq!((found.values, found.differing, found.unequal), (6, 4, 1));
        assert_eq!((found.largest, found.worst[1].index), (2.0, Some(2)));
        assert_eq!(found.worst[0].a, "1 values");
        assert_eq!(found.rank_correlation, Some(0.0), "the mean of 1 and -1");
        assert_eq!(found.lowest_rank_correlation, Some(-1.0));
    }

    #[test]
    fn texts_and_booleans_are_equal_or_not() {
        let found = exact(
            Arc::new(StringArray::from(vec!["a", "b"])),
            Arc::new(StringArray::from(vec!["a", "c"])),
        );
        assert_eq!((found.values, found.unequal, found.rank_correlation), (2, 1, None));
        assert_eq!((&found.worst[0].a, &found.worst[0].b), (&"b".into(), &"c".into()));
        let flags = |flags: [bool; 2]| -> ArrayRef { Arc::new(BooleanArray::from(flags.to_vec())) };
        let found = exact(flags([true, false]), flags([true, true]));
        assert_eq!((found.unequal, &found.worst[0].b), (1, &true.into()));
    }
}
