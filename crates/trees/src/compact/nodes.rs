//! Nodes of two sizes: of eight bytes where they suffice, and of sixteen.

use super::Node;

/// A node of sixteen bytes, for trees with more nodes, or models with more slots, than the bits of
/// [`Node`] count. It has the same form otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Wide {
    threshold: f32,
    /// The left child, with the tree's root as 0; the right child is behind it.
    left: u32,
    slot: u32,
    default_left: bool,
}

impl Wide {
    fn leaf(at: u32) -> Self {
        Self { threshold: f32::NAN, left: at.wrapping_sub(1), slot: 0, default_left: false }
    }

    fn split(threshold: f32, left: u32, default_left: bool, slot: u32) -> Self {
        Self { threshold, left, slot, default_left }
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }

    /// The left child of this node, which is the node `at` of its tree. None for a leaf.
    pub(crate) fn left(self, at: u32) -> Option<u32> {
        (self.next(f32::NAN) != at).then_some(self.left)
    }

    /// The child to which a row goes that has `value` in the slot of this node.
    #[inline(always)]
    pub(crate) fn next(self, value: f32) -> u32 {
        let left = (value < self.threshold) | (value.is_nan() & self.default_left);
        self.left.wrapping_add(u32::from(!left))
    }

    /// The same for a value that is not missing.
    #[inline(always)]
    pub(crate) fn next_of_present(self, value: f32) -> u32 {
        let left = value < self.threshold;
        self.left.wrapping_add(u32::from(!left))
    }
}

/// The nodes of all trees.
#[derive(Debug)]
pub(crate) enum Nodes {
    Narrow(Vec<Node>),
    Wide(Vec<Wide>),
}

impl Nodes {
    /// True if nodes of eight bytes suffice for trees of at most `nodes` nodes and a model of
    /// `slots` slots.
    pub(super) fn are_narrow(nodes: usize, slots: usize) -> bool {
        nodes <= Node::NODES && slots <= Node::SLOTS
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Narrow(nodes) => nodes.len(),
            Self::Wide(nodes) => nodes.len(),
        }
    }

    /// Adds the leaf that is the node `at` of its tree.
    pub(super) fn push_leaf(&mut self, at: u32) {
        match self {
            Self::Narrow(nodes) => nodes.push(Node::leaf(at)),
            Self::Wide(nodes) => nodes.push(Wide::leaf(at)),
        }
    }

    /// Adds a split.
    pub(super) fn push_split(&mut self, threshold: f32, left: u32, default_left: bool, slot: u32) {
        match self {
            Self::Narrow(nodes) => nodes.push(Node::split(threshold, left, default_left, slot)),
            Self::Wide(nodes) => nodes.push(Wide::split(threshold, left, default_left, slot)),
        }
    }

    /// The node at `place`.
    pub(crate) fn get(&self, place: usize) -> Wide {
        match self {
            Self::Narrow(nodes) => nodes[place].widened(),
            Self::Wide(nodes) => nodes[place],
        }
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Narrow(nodes) => size_of_val(&**nodes),
            Self::Wide(nodes) => size_of_val(&**nodes),
        }
    }

    /// The same nodes with sixteen bytes each.
    #[cfg(test)]
    pub(crate) fn widened(self) -> Self {
        match self {
            Self::Narrow(nodes) => Self::Wide(nodes.into_iter().map(Node::widened).collect()),
            wide @ Self::Wide(_) => wide,
        }
    }
}

impl Node {
    /// The same node with sixteen bytes.
    fn widened(self) -> Wide {
        let left = self.link & Self::CHILD;
        // The root as a leaf is the only node whose link is before the first one.
        let is_root_leaf = self.threshold.is_nan() && left == Self::CHILD;
        Wide {
            threshold: self.threshold,
            left: if is_root_leaf { u32::MAX } else { left },
            slot: self.slot() as u32,
            default_left: self.link & Self::DEFAULT_LEFT != 0,
        }
    }
}

const _: () = assert!(size_of::<Node>() == 8 && size_of::<Wide>() == 16, "nodes have these sizes");
