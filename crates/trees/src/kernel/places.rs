//! The places of leaves.

use std::ops::Range;

use super::{Leaves, vectors::Vectors};

/// Writes the places of leaves. The numbers of leaves are found by them, and the kernels timed with
/// them: each further kind of results compiles all kernels once more.
pub(crate) struct Places<'a> {
    /// The first tree.
    first: usize,
    /// The distances between the places of two rows, and between those of two trees.
    of_row: usize,
    of_tree: usize,
    out: &'a mut [u32],
    /// The first row, and the number of rows, of each block in progress.
    blocks: Vec<(usize, usize)>,
}

impl<'a> Places<'a> {
    /// Row after row, with a place for each of `trees`.
    pub(crate) fn by_row(trees: Range<usize>, out: &'a mut [u32]) -> Self {
        Self { first: trees.start, of_row: trees.len(), of_tree: 1, out, blocks: Vec::new() }
    }

    /// Tree after tree, with a place for each of `rows`.
    pub(crate) fn by_tree(trees: Range<usize>, rows: usize, out: &'a mut [u32]) -> Self {
        Self { first: trees.start, of_row: 1, of_tree: rows, out, blocks: Vec::new() }
    }

    #[inline(always)]
    fn place(&self, row: usize, tree: usize) -> usize {
        row * self.of_row + (tree - self.first) * self.of_tree
    }
}

impl Leaves for Places<'_> {
    fn begin(&mut self, block: usize, first: usize, count: usize) {
        begin(&mut self.blocks, block, first, count);
    }

    #[inline(always)]
    fn of_rows<V: Vectors>(
        &mut self,
        vectors: V,
        block: usize,
        tree: usize,
        _: Range<usize>,
        leaves: V::Words,
    ) {
        let (first, count) = self.blocks[block];
        let found = vectors.store(leaves);
        let place = self.place(first, tree);
        if self.of_row == 1 {
            // Those of a tree are beside each other.
            self.out[place..][..count].copy_from_slice(&found[..count]);
        } else {
            let out = self.out[place..].iter_mut().step_by(self.of_row).take(count);
            out.zip(found).for_each(|(out, leaf)| *out = leaf);
        }
    }

    fn end(&mut self, _: usize, _: usize, _: usize) {}

    #[inline(always)]
    fn of_trees(&mut self, row: usize, tree: usize, leaves: &[u32]) {
        let place = self.place(row, tree);
        let out = self.out[place..].iter_mut().step_by(self.of_tree);
        out.zip(leaves).for_each(|(out, leaf)| *out = *leaf);
    }
}

/// Keeps the rows of a block that begins.
pub(crate) fn begin(blocks: &mut Vec<(usize, usize)>, block: usize, first: usize, count: usize) {
    blocks.resize(blocks.len().max(block + 1), (0, 0));
    blocks[block] = (first, count);
}
