//! One tree of a model, in the form in which the model holds it.

use crate::{
    compact::{Compact, Wide},
    real::Real as _,
    rows::Row,
    tree::Tree,
};

/// A tree whose nodes are visited one by one. The root is node 0; nodes are numbered in breadth-first
/// order, the right child of a split behind its left one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum View<'a> {
    Any(&'a Tree),
    /// The tree with this number.
    Compact(&'a Compact, usize),
    /// A tree that is not made of nodes: a leaf without a value. No contributions are computed of
    /// models with such trees.
    None,
}

/// A split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) feature: usize,
    /// The left child.
    pub(crate) left: u32,
}

impl View<'_> {
    /// The split at a node. None for a leaf.
    pub(crate) fn split(self, node: u32) -> Option<Split> {
        match self {
            Self::Any(tree) => {
                let node = tree.nodes[node as usize];
                (!node.is_leaf()).then(|| Split { feature: node.feature(), left: node.left })
            }
            Self::Compact(compact, tree) => {
                let found = node_of(compact, tree, node);
                let feature = || compact.features[found.slot()] as usize;
                found.left(node).map(|left| Split { feature: feature(), left })
            }
            Self::None => None,
        }
    }

    /// True if `row` goes to the left child of the split at `node`.
    pub(crate) fn goes_left(self, node: u32, row: Row<'_>) -> bool {
        match self {
            Self::Any(tree) => tree.goes_left(tree.nodes[node as usize], row),
            Self::Compact(compact, tree) => {
                let found = node_of(compact, tree, node);
                let feature = compact.features[found.slot()] as usize;
                found.left(node) == Some(found.next(row.value(feature)))
            }
            Self::None => false,
        }
    }

    /// The value in f32 that a leaf adds to an output; that of the leaf's vector if it has one.
    pub(crate) fn value(self, leaf: u32, output: usize) -> f32 {
        match self {
            Self::Any(tree) => {
                let leaf = tree.nodes[leaf as usize];
                if tree.width == 1 { leaf.value() } else { tree.vector(leaf)[output] }
            }
            Self::Compact(compact, tree) => {
                let values = f32::values(compact);
                values.get(compact.roots[tree] as usize + leaf as usize).copied().unwrap_or(0.0)
            }
            Self::None => 0.0,
        }
    }

    /// Values of a leaf.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Any(tree) => tree.width,
            Self::Compact(..) | Self::None => 1,
        }
    }

    /// The longest way from the root to a leaf, in splits.
    pub(crate) fn depth(self) -> u32 {
        match self {
            Self::Any(tree) => tree.depth,
            Self::Compact(compact, tree) => compact.depths[tree],
            Self::None => 0,
        }
    }
}

/// A node of a compact tree.
fn node_of(compact: &Compact, tree: usize, node: u32) -> Wide {
    compact.nodes.get(compact.roots[tree] as usize + node as usize)
}
