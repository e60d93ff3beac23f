//! The slots of features, for sparse rows.

use crate::{Budget, Error, Numbering, SparseRows};

/// A feature that no split uses.
const NONE: u32 = u32::MAX;

/// Features that share a table with one that has a slot, at most on average.
const SPARSE: usize = 8;

/// Features of a table of any density.
const FEW: usize = 1 << 10;

/// A number, the slot, for each of the features that splits use: the position in their ascending
/// order. Sparse rows become rows with an element for each slot, whatever the number of features.
#[derive(Debug)]
pub(crate) struct Slots {
    count: usize,
    table: Table,
}

/// Sparse rows, and the slots of their ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) slots: &'a Slots,
    rows: SparseRows<'a>,
    /// The slot of each id, or [`NONE`].
    found: &'a [u32],
}

impl Placed<'_> {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Slots and weights of a row, in the order of its entries. XGBoost drops missing entries
    /// before the last of several for a feature wins.
    #[inline]
    pub(crate) fn entries(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let all = self.rows.looked_up(self.found, row);
        let present = all.filter(|(slot, weight)| *slot != NONE && !weight.is_nan());
        present.map(|(slot, weight)| (slot as usize, weight))
    }
}

#[derive(Debug)]
enum Table {
    /// The slot of each feature from 0 on, or [`NONE`].
    Direct(Vec<u32>),
    /// For features that are far from each other.
    Hashed(Numbering),
}

impl Slots {
    /// The slots of `features`, which ascend.
    pub(crate) fn new(features: &[u32], budget: &mut Budget) -> Result<Self, Error> {
        let length = features.last().map_or(0, |last| *last as usize + 1);
        let table = if length <= FEW.max(SPARSE * features.len()) {
            let mut slots = budget.filled(NONE, length)?;
            features.iter().zip(0..).for_each(|(feature, slot)| slots[*feature as usize] = slot);
            Table::Direct(slots)
        } else {
            let mut ids = Numbering::new(budget)?;
            for feature in features {
                ids.insert(u64::from(*feature), budget)?;
            }
            ids.shrink(budget);
            Table::Hashed(ids)
        };
        Ok(Self { count: features.len(), table })
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The slot of a feature that a split uses.
    #[inline]
    pub(crate) fn get(&self, feature: u64) -> Option<usize> {
        match &self.table {
            Table::Direct(slots) => {
                let slot = *slots.get(usize::try_from(feature).ok()?)?;
                (slot != NONE).then_some(slot as usize)
            }
            Table::Hashed(ids) => ids.get(feature),
        }
    }

    /// The slots of the ids of `rows`, of which `found` holds the memory.
    pub(crate) fn place<'a>(&'a self, rows: SparseRows<'a>, found: &'a mut Vec<u32>) -> Placed<'a> {
        *found = rows.look_up(|id| self.get(id).map_or(NONE, |slot| slot as u32));
        Placed { slots: self, rows, found }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        match &self.table {
            Table::Direct(slots) => size_of::<u32>() * slots.capacity(),
            Table::Hashed(ids) => ids.memory(),
        }
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
                prop_assert_eq!(slots.memory() as u64, budget.held());
            }
        }
    }

    #[test]
    fn memory_depends_on_the_features_that_are_used() {
        let mut budget = Budget::of(1000);
        let slots = Slots::new(&[7, (1 << 30) - 1], &mut budget).expect("little memory");
        assert_eq!((slots.len(), slots.get((1 << 30) - 1)), (2, Some(1)));
    }
}
