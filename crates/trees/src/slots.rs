//! The slots of features, for sparse rows.

use std::ops::Range;

use crate::{Budget, Error, Numbers, SparseRows};

/// A feature that no split uses.
const NONE: u32 = u32::MAX;

/// A number, the slot, for each of the features that splits use: the position in their ascending
/// order. Sparse rows become rows with an element for each slot, whatever the number of features.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The slot of each feature is its number.
    numbers: Numbers,
}

/// Sparse rows, and the slots of their ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) slots: &'a Slots,
    rows: SparseRows<'a>,
    /// The slot of each id, or [`NONE`].
    found: &'a [u32],
    /// The number of features if XGBoost counts the entries of a row.
    counted: Option<usize>,
}

impl Placed<'_> {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Some of the rows.
    pub(crate) fn slice(self, some: Range<usize>) -> Self {
        let (all, entries) =
            (self.rows.entries_of(0..self.len()), self.rows.entries_of(some.clone()));
        let found = &self.found[entries.start - all.start..entries.end - all.start];
        Self { rows: self.rows.slice(some), found, ..self }
    }

    /// Slots and weights of a row, in the order of its entries, of which the last one for a slot
    /// counts. XGBoost drops missing entries before the last of several for a feature wins.
    ///
    /// A row that XGBoost takes for complete has all slots first, with a value that goes right.
    #[inline]
    pub(crate) fn entries(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let all = self.rows.looked_up(self.found, row);
        let present = all.filter(|(slot, weight)| *slot != NONE && !weight.is_nan());
        let slots = if self.is_complete(row) { self.slots.len() } else { 0 };
        let right = (0..slots).map(|slot| (slot, f32::INFINITY));
        right.chain(present.map(|(slot, weight)| (slot as usize, weight)))
    }

    /// True if XGBoost takes a row for one without missing values: it has as many present entries
    /// for features as there are features, whether or not some are for the same one. XGBoost then
    /// compares the missing values of numbers too, which are NaN: they go right. Its versions 1.5.0,
    /// 3.0.5 and 3.4.1 do so; the latter two also count entries that are for no feature.
    #[inline]
    fn is_complete(&self, row: usize) -> bool {
        let Some(features) = self.counted else { return false };
        if self.rows.length(row) < features {
            return false;
        }
        let is_present = |(id, weight): &(u64, f32)| *id < features as u64 && !weight.is_nan();
        self.rows.row(row).filter(is_present).count() == features
    }
}

impl Slots {
    /// The slots of `features`, which ascend.
    pub(crate) fn new(features: &[u32], budget: &mut Budget) -> Result<Self, Error> {
        Ok(Self { numbers: Numbers::of_sorted(features, budget)? })
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The slot of a feature that a split uses.
    #[inline]
    pub(crate) fn get(&self, feature: u64) -> Option<usize> {
        self.numbers.get(feature)
    }

    /// The features that have slots, ascending.
    pub(crate) fn features(&self) -> Vec<u64> {
        self.numbers.ids()
    }

    /// The slots of the ids of `rows`, of which `found` holds the memory. `counted` is the number of
    /// features of a model of XGBoost, which counts the entries of a row.
    pub(crate) fn place<'a>(
        &'a self,
        rows: SparseRows<'a>,
        counted: Option<usize>,
        found: &'a mut Vec<u32>,
    ) -> Placed<'a> {
        *found = rows.look_up(|id| self.get(id).map_or(NONE, |slot| slot as u32));
        Placed { slots: self, rows, found, counted }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.numbers.memory()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn features_have_the_positions_of_a_sorted_list(
            near in prop::collection::btree_set(0_u32..2000, 0..300),
            far in prop::collection::btree_set(0_u32..1 << 30, 0..20),
        ) {
            for features in [&near, &(&near | &far)] {
                let features: Vec<_> = features.iter().copied().collect();
                let mut budget = Budget::of(1 << 20);
                let slots = Slots::new(&features, &mut budget).expect("memory");
                let asked: BTreeSet<_> = (0..2100).chain(features.iter().copied()).collect();
                for feature in asked {
                    let expected = features.binary_search(&feature).ok();
                    prop_assert_eq!(slots.get(feature.into()), expected);
                }
                for beyond in [1 << 30, 1 << 32, u64::MAX] {
                    prop_assert_eq!(slots.get(beyond), None);
                }
                prop_assert!(slots.features().into_iter().eq(features.iter().map(|it| u64::from(*it))));
                prop_assert_eq!(slots.memory() as u64, budget.held());
            }
        }
    }

    #[test]
    fn a_row_with_as_many_entries_as_features_has_no_missing_values() {
        let slots = Slots::new(&[0, 2], &mut Budget::of(1000)).expect("memory");
        let placed = |row: &[(u64, f32)], counted| {
            let (ids, weights): (Vec<_>, Vec<_>) = row.iter().copied().unzip();
            let offsets = [0, row.len() as u32];
            let rows = SparseRows::new(&ids, &weights, &offsets).expect("a row").truncated();
            let (mut found, mut values) = (Vec::new(), [None; 2]);
            let placed = slots.place(rows, counted, &mut found);
            placed.entries(0).for_each(|(slot, value)| values[slot] = Some(value));
            values
        };
        let right = Some(f32::INFINITY);
        let twice = [(2, 7.0), (2, 8.0), (1, 1.0)];
        assert_eq!(placed(&twice, Some(3)), [right, Some(8.0)]);
        assert_eq!(placed(&twice, None), [None, Some(8.0)]);
        assert_eq!(placed(&twice, Some(4)), [None, Some(8.0)]);
        // A missing entry and one for no feature do not count.
        let others = [(2, 7.0), (2, f32::NAN), (3, 1.0), (1 << 31, 1.0)];
        assert_eq!(placed(&others, Some(3)), [None, Some(7.0)]);
        let entries = [&others[..], &[(1, 1.0), (1 | 1 << 32, 1.0)]].concat();
        assert_eq!(placed(&entries, Some(3)), [right, Some(7.0)]);
        assert_eq!(placed(&[(0, 1.0), (1, 2.0), (2, 3.0)], Some(3)), [Some(1.0), Some(3.0)]);
    }

    #[test]
    fn memory_depends_on_the_features_that_are_used() {
        let mut budget = Budget::of(1000);
        let slots = Slots::new(&[7, (1 << 30) - 1], &mut budget).expect("little memory");
        assert_eq!((slots.len(), slots.get((1 << 30) - 1)), (2, Some(1)));
    }
}
