//! The features of the leaves of trees.

use std::ops::Range;

use crate::{Error, budget::Budget, ids::number};

/// A leaf that has no feature.
const NONE: u32 = u32::MAX;

/// The leaves of one tree.
#[derive(Debug, Clone)]
enum Leaves {
    /// An entry for each leaf from `first` on: the feature, or [`NONE`].
    Dense { first: u32, entries: Range<usize> },
    /// Entries are the leaves that have a feature, ascending; their features are numbered without
    /// gaps from `feature` on. For leaves with large gaps.
    Sorted { feature: u32, entries: Range<usize> },
}

/// The feature of each leaf. Features of leaves are numbered in the order of trees and leaves.
#[derive(Debug)]
pub(crate) struct LeafFeatures {
    trees: Vec<Leaves>,
    entries: Vec<u32>,
}

impl LeafFeatures {
    /// The features of the `leaves` of `trees` trees, which have no features yet.
    ///
    /// `leaves` are pairs of a tree and a leaf, ascending. Their features have the numbers from
    /// `first` on.
    pub(crate) fn new(
        leaves: &[(u32, u32)],
        trees: usize,
        first: usize,
        budget: &mut Budget,
    ) -> Result<Self, Error> {
        let nothing = Leaves::Dense { first: 0, entries: 0..0 };
        let mut features = Self { trees: budget.filled(nothing, trees)?, entries: Vec::new() };
        let mut next = first;
        for leaves in leaves.chunk_by(|a, b| a.0 == b.0) {
            let feature = number(next)?;
            features.trees[leaves[0].0 as usize] = features.tree(leaves, feature, budget)?;
            next += leaves.len();
        }
        budget.release::<u32>(features.entries.capacity() - features.entries.len());
        features.entries.shrink_to_fit();
        Ok(features)
    }

    /// Adds the leaves of one tree. Their features have the numbers from `feature` on.
    fn tree(
        &mut self,
        leaves: &[(u32, u32)],
        feature: u32,
        budget: &mut Budget,
    ) -> Result<Leaves, Error> {
        let (first, last) = (leaves[0].1, leaves[leaves.len() - 1].1);
        let (start, span) = (self.entries.len(), (last - first) as usize + 1);
        // A full tree whose leaves all have features has a span of at most twice their number.
        if span > 4 * leaves.len() {
            budget.reserve(&mut self.entries, leaves.len())?;
            self.entries.extend(leaves.iter().map(|(_, leaf)| *leaf));
            return Ok(Leaves::Sorted { feature, entries: start..self.entries.len() });
        }
        budget.reserve(&mut self.entries, span)?;
        self.entries.resize(start + span, NONE);
        for ((_, leaf), feature) in leaves.iter().zip(feature..) {
            self.entries[start + (leaf - first) as usize] = feature;
        }
        Ok(Leaves::Dense { first, entries: start..start + span })
    }

    /// The feature of a leaf. None if it has no feature.
    #[inline]
    pub(crate) fn get(&self, tree: usize, leaf: u32) -> Option<u32> {
        match &self.trees[tree] {
            Leaves::Dense { first, entries } => {
                let at = leaf.checked_sub(*first)? as usize;
                let feature = self.entries[entries.clone()].get(at).copied();
                feature.filter(|feature| *feature != NONE)
            }
            Leaves::Sorted { feature, entries } => {
                let at = self.entries[entries.clone()].binary_search(&leaf).ok()?;
                Some(feature + at as u32)
            }
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Leaves>() * self.trees.capacity() + size_of::<u32>() * self.entries.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn leaves_have_the_features_of_a_map(
            near in prop::collection::btree_set((0_u32..5, 30_u32..64), 0..80),
            far in prop::collection::btree_set((3_u32..5, any::<u32>()), 0..8),
            first in 0_usize..100,
        ) {
            let leaves: Vec<_> = near.union(&far).copied().collect();
            let map: BTreeMap<_, _> = leaves.iter().copied().zip(first as u32..).collect();
            let mut budget = Budget::new(1 << 16);
            let features = LeafFeatures::new(&leaves, 6, first, &mut budget).expect("memory");
            let asked = (0..6).flat_map(|tree| (0..70).map(move |leaf| (tree, leaf)));
            for (tree, leaf) in asked.chain(leaves) {
                let found = features.get(tree as usize, leaf);
                prop_assert_eq!(found, map.get(&(tree, leaf)).copied());
            }
            prop_assert_eq!(features.memory() as u64, budget.held());
        }
    }

    #[test]
    fn leaves_far_from_each_other_take_little_memory() {
        let mut budget = Budget::new(1000);
        let leaves = [(0, 1), (0, u32::MAX)];
        let features = LeafFeatures::new(&leaves, 1, 7, &mut budget).expect("memory");
        assert_eq!([0, 1, u32::MAX].map(|leaf| features.get(0, leaf)), [None, Some(7), Some(8)]);
    }
}
