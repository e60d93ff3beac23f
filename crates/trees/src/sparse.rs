//! Sparse rows.

use std::{fmt, ops::Range};

/// Sparse rows in compressed form: the ids and weights of all rows, one row after the other, and
/// the place at which each row begins.
///
/// An id may occur more than once in a row, in any order. For trees, an id is the number of a
/// feature: the last weight of an id counts, one that is NaN is missing, a feature without an id
/// is missing too, and a weight of 0 is a value. Ids that are no features of a model are ignored.
/// A model of XGBoost takes a row for complete that has as many entries that are not missing as
/// there are features, and sends what the row lacks right.
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

    /// The results of `map` for the ids and weights of all entries.
    pub(crate) fn map_weights(&self, map: impl Fn(u64, f32) -> f32) -> Vec<f32> {
        let entries = self.ids.iter().zip(self.weights);
        entries.map(|(id, weight)| map(*id & self.mask, *weight)).collect()
    }

    /// The same rows with other weights, one for each entry.
    pub(crate) fn with_weights(self, weights: &'a [f32]) -> Self {
        debug_assert_eq!(weights.len(), self.weights.len(), "a weight for each entry");
        Self { weights, ..self }
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

    /// The number of entries of the row `at`.
    #[inline]
    pub(crate) fn length(&self, at: usize) -> usize {
        self.entries(at).len()
    }

    /// Ids and weights of the row `at`.
    ///
    /// # Panics
    /// Panics if there is no such row.
    #[inline]
    pub fn row(&self, at: usize) -> impl Iterator<Item = (u64, f32)> + use<'a> {
        let (entries, mask) = (self.entries(at), self.mask);
        let ids = self.ids[entries.clone()].iter().map(move |id| *id & mask);
        ids.zip(self.weights[entries].iter().copied())
    }

    /// The result of `find` for each id, one row after the other.
    ///
    /// The rows of a user's treatments begin with the ids of the user: ids that a row and the row
    /// before it have in common at their beginnings are looked up once.
    pub fn look_up(&self, mut find: impl FnMut(u64) -> u32) -> Vec<u32> {
        let mut found = Vec::with_capacity(self.entries_of(0..self.len()).len());
        let mut before = 0..0;
        for at in 0..self.len() {
            let (row, first) = (self.entries(at), found.len());
            let of_both = self.ids[before.clone()].iter().zip(&self.ids[row.clone()]);
            let common = of_both.take_while(|(a, b)| a == b).count();
            found.extend_from_within(first - before.len()..first - before.len() + common);
            let others = &self.ids[row.start + common..row.end];
            found.extend(others.iter().map(|id| find(*id & self.mask)));
            before = row;
        }
        found
    }

    /// The results of [`Self::look_up`] for the ids of the row `at`, with their weights.
    ///
    /// # Panics
    /// Panics if there is no such row, or `found` is not of these rows.
    #[inline]
    pub fn looked_up<'f>(
        &self,
        found: &'f [u32],
        at: usize,
    ) -> impl Iterator<Item = (u32, f32)> + use<'a, 'f> {
        let (entries, first) = (self.entries(at), self.offsets[0] as usize);
        let found = &found[entries.start - first..entries.end - first];
        found.iter().copied().zip(self.weights[entries].iter().copied())
    }

    /// The places of the entries of the row `at`.
    #[inline]
    fn entries(&self, at: usize) -> Range<usize> {
        self.entries_of(at..at + 1)
    }

    /// The places of the entries of some rows.
    #[inline]
    pub(crate) fn entries_of(&self, rows: Range<usize>) -> Range<usize> {
        self.offsets[rows.start] as usize..self.offsets[rows.end] as usize
    }

    /// The row and the id of the first infinite weight. Trees compare it like any other number, but
    /// XGBoost refuses such rows.
    pub fn infinite(&self) -> Option<(usize, u64)> {
        self.find(|_, weight| weight.is_infinite())
    }

    /// The row and the id of the first entry whose id and weight are `wanted`.
    pub fn find(&self, wanted: impl Fn(u64, f32) -> bool) -> Option<(usize, u64)> {
        let [first, end] = [self.offsets[0], self.offsets[self.len()]].map(|at| at as usize);
        let mut entries = self.ids[first..end].iter().zip(&self.weights[first..end]);
        let at = first + entries.position(|(id, weight)| wanted(*id & self.mask, *weight))?;
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ids_of_a_user_are_looked_up_once() {
        // A user with three treatments, and another one with two; the last row has no ids.
        let rows = [&[1, 2, 7, 8][..], &[1, 2, 9], &[1, 2], &[3, 4, 7], &[3, 4, 7], &[]];
        let ids = rows.concat();
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.len() as u32;
            Some(*end)
        });
        let offsets: Vec<_> = [0].into_iter().chain(ends).collect();
        let weights = vec![1.0; ids.len()];
        let rows = SparseRows::new(&ids, &weights, &offsets).expect("rows");
        let mut asked = Vec::new();
        let found = rows.look_up(|id| {
            asked.push(id);
            id as u32
        });
        assert!(found.iter().map(|id| u64::from(*id)).eq(ids.iter().copied()));
        assert_eq!(asked, [1, 2, 7, 8, 9, 3, 4, 7], "8 look-ups for {} ids", ids.len());
    }

    proptest! {
        #[test]
        fn look_ups_are_those_of_each_id(
            rows in prop::collection::vec(prop::collection::vec(0_u64..3, 0..6), 0..8),
            some in any::<prop::sample::Index>(),
        ) {
            let wide = rows.iter().flatten().map(|id| id | id << 32);
            let ids: Vec<_> = wide.collect();
            let ends = rows.iter().scan(0, |end, row| {
                *end += row.len() as u32;
                Some(*end)
            });
            let offsets: Vec<_> = [0].into_iter().chain(ends).collect();
            let weights: Vec<_> = (0..ids.len()).map(|at| at as f32).collect();
            let all = SparseRows::new(&ids, &weights, &offsets).expect("rows");
            let some = all.slice(some.index(rows.len() + 1)..rows.len());
            for rows in [all, some, some.truncated()] {
                let number = |id: u64| (id % 1000) as u32;
                let found = rows.look_up(number);
                for at in 0..rows.len() {
                    let expected = rows.row(at).map(|(id, weight)| (number(id), weight));
                    prop_assert!(rows.looked_up(&found, at).eq(expected));
                }
            }
        }
    }

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
