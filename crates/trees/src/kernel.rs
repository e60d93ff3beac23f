//! Kernels: ways to find the leaf of every tree for rows. All find the same leaves.
//!
//! One row after the other goes through many trees at once (`row`), or a block of rows goes through
//! one tree after the other (`block`). Both are written once, over the vectors of each kind of
//! processor (`Vectors`).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod choice;
mod lanes;
mod oblivious;
mod places;
mod portable;
mod row;
mod step;
mod vectors;

use std::ops::Range;

use crate::{compact::Compact, rows::Input};

#[cfg(test)]
pub(crate) use choice::Kernel;
pub(crate) use choice::{Choice, Kind, permutes};
pub(crate) use oblivious::ObliviousWork;
pub(crate) use places::{Places, begin};
pub(crate) use vectors::{LANES, Slot, Vectors};

/// Receives the leaves that a kernel finds, as places in the arrays of all nodes. For each row the
/// trees come in ascending order, so that sums are taken in the order of the trees.
pub(crate) trait Leaves {
    /// A block of `count` rows begins with the row `first`. A block has at most [`LANES`] rows, and
    /// several may be in progress, each with a number.
    fn begin(&mut self, block: usize, first: usize, count: usize);

    /// The rows of the block end in `leaves` of the tree `tree`, whose nodes are at `nodes`.
    fn of_rows<V: Vectors>(
        &mut self,
        vectors: V,
        block: usize,
        tree: usize,
        nodes: Range<usize>,
        leaves: V::Words,
    );

    /// The block that began with these arguments is complete.
    fn end(&mut self, block: usize, first: usize, count: usize);

    /// The row `row` ends in `leaves` of the trees from `tree` on.
    fn of_trees(&mut self, row: usize, tree: usize, leaves: &[u32]);
}

/// Steps of a walk between checks that all its lanes have come to leaves.
const STRIDE: u32 = 4;

/// Work for a kernel.
#[derive(Clone)]
struct Work<'a> {
    compact: &'a Compact,
    rows: Input<'a>,
    /// The rows that the kernel is to score.
    scored: Range<usize>,
    trees: Range<usize>,
}

impl Work<'_> {
    /// The value of the slot of `feature` in a row; missing where the row is too short.
    #[inline(always)]
    fn value(row: &[f32], feature: u32) -> f32 {
        row.get(feature as usize).copied().unwrap_or(f32::NAN)
    }
}
