//! The results of kernels: sums of the values of leaves, or their numbers.

use std::ops::Range;

use crate::{
    kernel::{LANES, Leaves, Vectors, begin},
    real::Real,
};

/// Adds up the values of leaves.
pub(super) struct Sums<'a, T> {
    pub(super) values: &'a [T],
    /// The output of each tree.
    pub(super) groups: &'a [u32],
    pub(super) outputs: usize,
    /// An element for each row and output.
    pub(super) sums: &'a mut [T],
    /// The sums of the blocks in progress: for each block and output, those of all rows.
    pub(super) blocks: Vec<[T; LANES]>,
}

impl<T: Real> Leaves for Sums<'_, T> {
    #[inline(always)]
    fn begin(&mut self, block: usize, first: usize, count: usize) {
        let end = (block + 1) * self.outputs;
        self.blocks.resize(self.blocks.len().max(end), [T::default(); LANES]);
        let rows = self.sums[first * self.outputs..].chunks_exact(self.outputs);
        for (lane, row) in rows.take(count).enumerate() {
            let sums = &mut self.blocks[block * self.outputs..];
            sums.iter_mut().zip(row).for_each(|(sums, sum)| sums[lane] = *sum);
        }
    }

    #[inline(always)]
    fn of_rows<V: Vectors>(
        &mut self,
        vectors: V,
        block: usize,
        tree: usize,
        nodes: Range<usize>,
        leaves: V::Words,
    ) {
        let sums = &mut self.blocks[block * self.outputs + self.groups[tree] as usize];
        T::add_leaves(vectors, self.values, nodes, leaves, sums);
    }

    #[inline(always)]
    fn end(&mut self, block: usize, first: usize, count: usize) {
        let rows = self.sums[first * self.outputs..].chunks_exact_mut(self.outputs);
        for (lane, row) in rows.take(count).enumerate() {
            let sums = &self.blocks[block * self.outputs..];
            row.iter_mut().zip(sums).for_each(|(sum, sums)| *sum = sums[lane]);
        }
    }

    #[inline(always)]
    fn of_trees(&mut self, row: usize, tree: usize, leaves: &[u32]) {
        let sums = &mut self.sums[row * self.outputs..][..self.outputs];
        if let [sum] = sums {
            // In a register, where the next addition does not wait for memory.
            let mut total = *sum;
            leaves.iter().for_each(|leaf| total += self.values[*leaf as usize]);
            *sum = total;
            return;
        }
        for (leaf, group) in leaves.iter().zip(&self.groups[tree..]) {
            sums[*group as usize] += self.values[*leaf as usize];
        }
    }
}

/// Adds up the values of leaves that have one for each output.
pub(super) struct VectorSums<'a, T> {
    /// The values of each leaf, one for each output.
    pub(super) values: &'a [T],
    pub(super) outputs: usize,
    /// An element for each row and output.
    pub(super) sums: &'a mut [T],
    /// The first row, and the number of rows, of each block in progress.
    pub(super) blocks: Vec<(usize, usize)>,
}

impl<T: Real> Leaves for VectorSums<'_, T> {
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
        for (row, leaf) in vectors.store(leaves)[..count].iter().enumerate() {
            self.of_trees(first + row, tree, &[*leaf]);
        }
    }

    fn end(&mut self, _: usize, _: usize, _: usize) {}

    #[inline(always)]
    fn of_trees(&mut self, row: usize, _: usize, leaves: &[u32]) {
        let sums = &mut self.sums[row * self.outputs..][..self.outputs];
        for leaf in leaves {
            let values = &self.values[*leaf as usize * self.outputs..];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value);
        }
    }
}

/// A type for the numbers of leaves.
pub(crate) trait LeafId: Copy {
    /// The value for the leaf with the number `id`.
    fn of(id: u32) -> Self;
}

impl LeafId for u32 {
    fn of(id: u32) -> Self {
        id
    }
}

/// Exact below 2^24.
impl LeafId for f32 {
    fn of(id: u32) -> Self {
        id as f32
    }
}
