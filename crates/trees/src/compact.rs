//! Trees in the form that the kernels walk: nodes of eight bytes, or of sixteen where numbers are
//! too large for eight, and the top of each tree as comparisons that need no walk.

mod build;
mod nodes;
mod tables;
mod top;

pub(crate) use build::used;
pub(crate) use nodes::{Nodes, Wide};
pub(crate) use tables::{LANES, Part, SPLITS, Tables};
pub(crate) use top::{EXITS, LEVELS, Record, Top};

use std::ops::Range;

use crate::budget::Budget;

/// A node, of eight bytes.
///
/// A leaf has itself for its next node, so that walks of different lengths take the same number of
/// steps and need no branch: its threshold is NaN, so that no value goes left, and its right child
/// is itself.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Node {
    pub(crate) threshold: f32,
    /// The left child, with the tree's root as 0, in 16 bits; the right child is behind it. Then a
    /// bit for the default direction, and the slot of the feature in 15 bits.
    pub(crate) link: u32,
}

impl Node {
    /// Nodes that a tree may have.
    const NODES: usize = 1 << 16;
    /// Slots that a model may have.
    const SLOTS: usize = 1 << 15;
    pub(crate) const CHILD: u32 = 0xFFFF;
    pub(crate) const DEFAULT_LEFT: u32 = 1 << 16;
    pub(crate) const SLOT: u32 = 17;

    fn leaf(at: u32) -> Self {
        Self { threshold: f32::NAN, link: at.wrapping_sub(1) & Self::CHILD }
    }

    fn split(threshold: f32, left: u32, default_left: bool, slot: u32) -> Self {
        let default = if default_left { Self::DEFAULT_LEFT } else { 0 };
        Self { threshold, link: left | default | slot << Self::SLOT }
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        (self.link >> Self::SLOT) as usize
    }

    /// The children of this node, which is the node `at` of its tree: of a leaf, itself.
    fn children(self, at: u32) -> [u32; 2] {
        let left = self.link & Self::CHILD;
        if self.threshold.is_nan() { [at; 2] } else { [left, left + 1] }
    }

    /// The child to which a row goes that has `value` in the slot of this node.
    #[inline(always)]
    pub(crate) fn next(self, value: f32) -> u32 {
        let default_left = self.link & Self::DEFAULT_LEFT != 0;
        let left = (value < self.threshold) | (value.is_nan() & default_left);
        self.link.wrapping_add(u32::from(!left)) & Self::CHILD
    }

    /// The same for a value that is not missing.
    #[inline(always)]
    pub(crate) fn next_of_present(self, value: f32) -> u32 {
        let left = value < self.threshold;
        self.link.wrapping_add(u32::from(!left)) & Self::CHILD
    }
}

/// All trees of a model.
#[derive(Debug)]
pub(crate) struct Compact {
    /// The feature of each slot, ascending. Only features that a split uses have a slot.
    pub(crate) features: Vec<u32>,
    /// The root of each tree in `nodes`.
    pub(crate) roots: Vec<u32>,
    /// The longest way from the root of each tree to a leaf, in splits.
    pub(crate) depths: Vec<u32>,
    /// The nodes of all trees. The children of a node are within its tree.
    pub(crate) nodes: Nodes,
    /// The value of each node that is a leaf.
    pub(crate) values: Values,
    /// The number of each node in the file.
    pub(crate) ids: Vec<u32>,
    pub(crate) tops: Vec<Top>,
    /// The splits in the tops of all trees.
    pub(crate) records: Vec<Record>,
    /// Tables of nodes, if the processor has vectors that permute.
    pub(crate) tables: Tables,
}

/// A value for each node, in the precision of the model's library.
#[derive(Debug)]
pub(crate) enum Values {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Compact {
    /// The places of the nodes of a tree.
    #[inline(always)]
    pub(crate) fn range(&self, tree: usize) -> Range<usize> {
        let end = self.roots.get(tree + 1).map_or(self.ids.len(), |root| *root as usize);
        self.roots[tree] as usize..end
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        let values = match &self.values {
            Values::Single(values) => size_of_val(&**values),
            Values::Double(values) => size_of_val(&**values),
        };
        size_of_val(&*self.features)
            + size_of_val(&*self.roots)
            + size_of_val(&*self.depths)
            + self.nodes.memory()
            + values
            + size_of_val(&*self.ids)
            + size_of_val(&*self.records)
            + size_of_val(&*self.tops)
            + self.tables.memory()
    }
}
