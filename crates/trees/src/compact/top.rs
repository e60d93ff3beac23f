//! The top of a tree, compared at once.
//!
//! The first levels of a tree lead to at most [`EXITS`] exits, numbered from left to right. Each
//! split has a record with a mask of the exits under its left child. For a row, the exits that a
//! split makes impossible are cleared, for all splits, whether the row comes to them or not: the
//! leftmost exit that remains is that of the row. (Lucchese et al., QuickScorer, SIGIR 2015.)

use crate::tree;

/// Levels of splits in the top of a tree.
pub(crate) const LEVELS: u32 = 5;

/// Exits from the top of a tree.
pub(crate) const EXITS: usize = 1 << LEVELS;

/// The top of a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Top {
    /// Its records in the array of all: first those of splits that send missing values left, then,
    /// from `right` to `end`, others.
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(crate) end: u32,
    /// The node of each exit, with the tree's root as 0.
    pub(crate) exits: [u16; EXITS],
}

/// A split in the top of a tree.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Record {
    pub(crate) threshold: f32,
    /// The exits under the left child, which are impossible for a row that goes right.
    pub(crate) clear: u32,
    pub(crate) slot: u32,
}

/// A node in the top of a tree: its index, its level, and the number of its first exit.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) node: u32,
    level: u32,
    pub(super) exit: u32,
}

impl Place {
    pub(super) const ROOT: Self = Self { node: 0, level: 0, exit: 0 };

    /// True for a split whose children are in the top, or exits from it.
    pub(super) fn is_split(self, nodes: &[tree::Node]) -> bool {
        self.level < LEVELS && !nodes[self.node as usize].is_leaf()
    }

    /// Exits under each child.
    fn half(self) -> u32 {
        1 << (LEVELS - self.level - 1)
    }

    pub(super) fn children(self, nodes: &[tree::Node]) -> [Self; 2] {
        let left = nodes[self.node as usize].left;
        let level = self.level + 1;
        let right = Self { node: left + 1, level, exit: self.exit + self.half() };
        [Self { node: left, level, exit: self.exit }, right]
    }

    /// The exits under the left child.
    pub(super) fn left_exits(self) -> u32 {
        ((1 << self.half()) - 1) << self.exit
    }
}
