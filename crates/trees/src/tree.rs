//! One tree, validated.

mod build;
mod categories;

pub(crate) use build::Arrays;
pub(crate) use categories::Categories;

/// A node of a tree. The nodes of a tree are in breadth-first order, and the children of a node are
/// beside each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node {
    /// The threshold of a numerical split or the value of a leaf, as bits; the place of the set of
    /// a categorical split, or of a leaf's vector.
    content: u32,
    /// The left child; 0 for a leaf, because the root is nobody's child.
    pub(crate) left: u32,
    /// The feature of a split, and flags.
    split: u32,
    /// The number of the node in the file.
    pub(crate) id: u32,
}

impl Node {
    const DEFAULT_LEFT: u32 = 1 << 31;
    const CATEGORICAL: u32 = 1 << 30;
    /// Features of a model; the bits above a feature's number are flags.
    pub(crate) const FEATURES: u32 = 1 << 30;

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
    categories: Categories,
    /// The vectors of the leaves, one after the other, if leaves have vectors.
    vectors: Box<[f32]>,
    /// Values of a leaf's vector; 1 if leaves have one value.
    pub(crate) width: usize,
    /// The part of the cover of each split that its left child has, in the order of the splits.
    /// Empty if the file has no covers.
    pub(crate) left_parts: Box<[f32]>,
}

impl Tree {
    /// The leaf in which `row` ends.
    pub(crate) fn leaf(&self, row: &[f32]) -> Node {
        let mut node = self.nodes[0];
        while !node.is_leaf() {
            node = self.nodes[node.left as usize + usize::from(!self.goes_left(node, row))];
        }
        node
    }

    /// True if `row` goes from the split `node` to its left child.
    pub(crate) fn goes_left(&self, node: Node, row: &[f32]) -> bool {
        let value = row.get(node.feature()).copied().unwrap_or(f32::NAN);
        if value.is_nan() {
            node.default_left()
        } else if node.is_categorical() {
            !self.categories.contains(node.content, value)
        } else {
            value < node.value()
        }
    }

    /// The vector of `leaf`, a leaf of this tree. Its leaves must have vectors.
    pub(crate) fn vector(&self, leaf: Node) -> &[f32] {
        let start = leaf.content as usize;
        &self.vectors[start..start + self.width]
    }

    /// Multiplies the values of all leaves.
    pub(crate) fn scale(&mut self, weight: f32) {
        if self.width == 1 {
            let leaves = self.nodes.iter_mut().filter(|node| node.is_leaf());
            leaves.for_each(|leaf| leaf.content = (leaf.value() * weight).to_bits());
        } else {
            self.vectors.iter_mut().for_each(|value| *value *= weight);
        }
    }

    /// The largest number of a feature that a split uses.
    pub(crate) fn last_feature(&self) -> Option<usize> {
        self.nodes.iter().filter(|node| !node.is_leaf()).map(|node| node.feature()).max()
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.vectors)
            + size_of_val(&*self.left_parts)
            + self.categories.memory()
    }
}
