//! One tree, validated.

mod build;
mod categories;

pub(crate) use build::Arrays;
pub(crate) use categories::Categories;

use crate::rows::Row;

/// A node of a tree. The nodes of a tree are in breadth-first order, and the children of a node are
/// beside each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node {
    /// The threshold of a numerical split or the value of a leaf, as bits; the place of the set of
    /// a categorical split, of a leaf's vector, or of a leaf's value in f64.
    content: u32,
    /// The left child; 0 for a leaf, because the root is nobody's child.
    pub(crate) left: u32,
    /// The feature of a split, and flags.
    split: u32,
    /// The number of the node in the file. Where leaves are numbered apart from splits, as in files
    /// of LightGBM, that of the leaf.
    pub(crate) id: u32,
}

/// The largest number that LightGBM takes for zero (`kZeroThreshold`).
pub(crate) const ZERO: f32 = 1e-35;

impl Node {
    const DEFAULT_LEFT: u32 = 1 << 31;
    const CATEGORICAL: u32 = 1 << 30;
    const ZERO_IS_MISSING: u32 = 1 << 29;
    /// Features of a model; the bits above a feature's number are flags.
    pub(crate) const FEATURES: u32 = 1 << 29;

    /// The threshold of a numerical split, or the value of a leaf without a vector.
    pub(crate) fn value(self) -> f32 {
        f32::from_bits(self.content)
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.left == 0
    }

    /// True if a missing value goes to the left child.
    pub(crate) fn default_left(self) -> bool {
        self.split & Self::DEFAULT_LEFT != 0
    }

    pub(crate) fn is_categorical(self) -> bool {
        self.split & Self::CATEGORICAL != 0
    }

    /// True if zero counts as a missing value.
    pub(crate) fn zero_is_missing(self) -> bool {
        self.split & Self::ZERO_IS_MISSING != 0
    }

    pub(crate) fn feature(self) -> usize {
        (self.split & (Self::FEATURES - 1)) as usize
    }
}

/// A tree that is known to be one: every walk from its root ends in a leaf.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Box<[Node]>,
    /// The longest way from the root to a leaf, in splits.
    pub(crate) depth: u32,
    /// The largest number of a feature that a split uses.
    pub(crate) last_feature: Option<usize>,
    /// True if no split is categorical, or takes zero for a missing value.
    pub(crate) is_plain: bool,
    categories: Categories,
    /// The vectors of the leaves, one after the other, if leaves have vectors.
    vectors: Box<[f32]>,
    /// Values of a leaf's vector; 1 if leaves have one value.
    pub(crate) width: usize,
    /// The values of the leaves in the order of the nodes, if they are in f64: [`Self::width`] of
    /// each.
    doubles: Box<[f64]>,
    /// The threshold in f64 of each split in the order of the nodes, of models that compare in f64.
    pub(crate) thresholds: Box<[f64]>,
    /// The part of the cover of each split that its left child has, in the order of the splits.
    /// Empty if the file has no covers.
    pub(crate) left_parts: Box<[f32]>,
}

impl Tree {
    /// The leaf in which `row` ends: its place in the nodes.
    pub(crate) fn leaf(&self, row: Row<'_>) -> usize {
        let mut at = 0;
        loop {
            let node = self.nodes[at];
            if node.is_leaf() {
                return at;
            }
            at = node.left as usize + usize::from(!self.goes_left(node, row));
        }
    }

    /// True if `row` goes from the split `node` to its left child.
    pub(crate) fn goes_left(&self, node: Node, row: Row<'_>) -> bool {
        let value = row.value(node.feature());
        if value.is_nan() || node.zero_is_missing() && value.abs() <= ZERO {
            node.default_left()
        } else if node.is_categorical() {
            !self.categories.contains(node.content, value)
        } else {
            value < node.value()
        }
    }

    /// The splits with their thresholds in f64.
    pub(crate) fn splits(&self) -> impl Iterator<Item = (Node, f64)> {
        let splits = self.nodes.iter().filter(|node| !node.is_leaf());
        splits.copied().zip(self.thresholds.iter().copied())
    }

    /// Replaces the thresholds in f64 by those in f32 that `threshold` returns for a feature and
    /// its threshold.
    pub(crate) fn replace_thresholds(&mut self, threshold: impl Fn(usize, f64) -> f32) {
        let splits = self.nodes.iter_mut().filter(|node| !node.is_leaf());
        for (node, found) in splits.zip(std::mem::take(&mut self.thresholds)) {
            if !node.is_categorical() {
                node.content = threshold(node.feature(), found).to_bits();
            }
        }
    }

    /// The vector of `leaf`, a leaf of this tree. Its leaves must have vectors.
    pub(crate) fn vector(&self, leaf: Node) -> &[f32] {
        let start = leaf.content as usize;
        &self.vectors[start..start + self.width]
    }

    /// The value in f64 of `leaf`, a leaf of this tree; 0 for a split.
    pub(crate) fn double(&self, leaf: Node) -> f64 {
        if leaf.is_leaf() { self.doubles[leaf.content as usize] } else { 0.0 }
    }

    /// The values in f64 of `leaf`, a leaf of this tree.
    pub(crate) fn vector_of_doubles(&self, leaf: Node) -> &[f64] {
        let start = leaf.content as usize;
        &self.doubles[start..start + self.width]
    }

    /// The number of values in f64.
    pub(crate) fn doubles(&self) -> usize {
        self.doubles.len()
    }

    /// Multiplies the values of all leaves, which are in f32.
    pub(crate) fn scale(&mut self, weight: f32) {
        if self.width == 1 {
            let leaves = self.nodes.iter_mut().filter(|node| node.is_leaf());
            leaves.for_each(|leaf| leaf.content = (leaf.value() * weight).to_bits());
        } else {
            self.vectors.iter_mut().for_each(|value| *value *= weight);
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.vectors)
            + size_of_val(&*self.doubles)
            + size_of_val(&*self.left_parts)
            + self.categories.memory()
    }
}
