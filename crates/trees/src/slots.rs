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

    /// Slots and weights of a row, in the order of its entries. XGBoost drops missing entries
    /// before the last of several for a feature wins.
    #[inline]
    pub(crate) fn entries<'a>(
        &'a self,
        rows: SparseRows<'a>,
        row: usize,
    ) -> impl Iterator<Item = (usize, f32)> + 'a {
        let present = rows.row(row).filter(|(_, weight)| !weight.is_nan());
        present.filter_map(|(id, weight)| Some((self.get(id)?, weight)))
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
