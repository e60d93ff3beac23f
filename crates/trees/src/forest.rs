//! The trees of a model, and the ways to score with them.

mod view;

use std::ops::Range;

use crate::{
    Error, Rows,
    budget::Budget,
    compact::Compact,
    kernel::{Choice, LANES, Leaves, Vectors},
    tree::Tree,
};
pub(crate) use view::{Split, View};

/// The trees of a model.
#[derive(Debug)]
pub(crate) enum Forest {
    /// Trees of any kind, walked one row after the other.
    Any(Vec<Tree>),
    /// Trees in a form that kernels walk faster, and the kernels.
    Compact(Compact, Choice),
}

impl Forest {
    pub(crate) fn new(trees: Vec<Tree>, budget: &mut Budget) -> Result<Self, Error> {
        match Compact::features(&trees, budget)? {
            Some(features) => {
                let compact = Compact::build(trees, features, budget)?;
                let choice = Choice::fastest(&compact);
                Ok(Self::Compact(compact, choice))
            }
            None => Ok(Self::Any(trees)),
        }
    }

    /// Adds the values of the leaves of `trees` to `sums`, which has an element for each row and
    /// output. The output of each tree is in `groups`.
    pub(crate) fn add(
        &self,
        rows: Rows<'_>,
        trees: Range<usize>,
        groups: &[u32],
        outputs: usize,
        sums: &mut [f32],
    ) {
        match self {
            Self::Any(all) => {
                for (row, sums) in rows.iter().zip(sums.chunks_exact_mut(outputs)) {
                    walk(&all[trees.clone()], row, &groups[trees.clone()], sums);
                }
            }
            Self::Compact(compact, choice) => {
                let (values, blocks) = (&compact.values, Vec::new());
                let mut sums = Sums { values, groups, outputs, sums, blocks };
                choice.run(compact, rows, trees, &mut sums);
            }
        }
    }

    /// Writes the number of the leaf of each of `trees`, row after row.
    pub(crate) fn leaves(&self, rows: Rows<'_>, trees: Range<usize>, out: &mut [impl LeafId]) {
        match self {
            Self::Any(all) => {
                let out = out.chunks_exact_mut(trees.len().max(1));
                for (row, out) in rows.iter().zip(out) {
                    let trees = all[trees.clone()].iter();
                    trees.zip(out).for_each(|(tree, out)| *out = LeafId::of(tree.leaf(row).id));
                }
            }
            Self::Compact(compact, choice) => {
                let (ids, blocks) = (&compact.ids, Vec::new());
                let mut ids = Ids { ids, trees: trees.clone(), out, blocks };
                choice.run(compact, rows, trees, &mut ids);
            }
        }
    }

    /// The tree with this number.
    pub(crate) fn tree(&self, number: usize) -> View<'_> {
        match self {
            Self::Any(trees) => View::Any(&trees[number]),
            Self::Compact(compact, _) => View::Compact(compact, number),
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Any(trees) => trees.iter().map(Tree::memory).sum(),
            Self::Compact(compact, _) => compact.memory(),
        }
    }
}

/// Adds the leaves of one row. The reference for the kernels.
fn walk(trees: &[Tree], row: &[f32], groups: &[u32], sums: &mut [f32]) {
    for (tree, group) in trees.iter().zip(groups) {
        let leaf = tree.leaf(row);
        if tree.width == 1 {
            sums[*group as usize] += leaf.value();
        } else {
            sums.iter_mut().zip(tree.vector(leaf)).for_each(|(sum, value)| *sum += value);
        }
    }
}

/// Adds up the values of leaves.
struct Sums<'a> {
    values: &'a [f32],
    groups: &'a [u32],
    outputs: usize,
    /// An element for each row and output.
    sums: &'a mut [f32],
    /// The sums of the blocks in progress: for each block and output, those of all rows.
    blocks: Vec<[f32; LANES]>,
}

impl Leaves for Sums<'_> {
    #[inline(always)]
    fn begin(&mut self, block: usize, first: usize, count: usize) {
        let end = (block + 1) * self.outputs;
        self.blocks.resize(self.blocks.len().max(end), [0.0; LANES]);
        let rows = self.sums[first * self.outputs..].chunks_exact(self.outputs);
        for (lane, row) in rows.take(count).enumerate() {
            let sums = &mut self.blocks[block * self.outputs..];
            sums.iter_mut().zip(row).for_each(|(sums, sum)| sums[lane] = *sum);
        }
    }

    #[inline(always)]
    fn of_rows<V: Vectors>(&mut self, vectors: V, block: usize, tree: usize, leaves: V::Words) {
        let sums = &mut self.blocks[block * self.outputs + self.groups[tree] as usize];
        let values = vectors.gather(self.values, leaves);
        *sums = vectors.store_floats(vectors.add(vectors.load_floats(sums), values));
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
            let values = leaves.iter().map(|leaf| self.values[*leaf as usize]);
            *sum = values.fold(*sum, |sum, value| sum + value);
            return;
        }
        for (leaf, group) in leaves.iter().zip(&self.groups[tree..]) {
            sums[*group as usize] += self.values[*leaf as usize];
        }
    }
}

/// A type for the numbers of leaves.
pub(crate) trait LeafId {
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

/// Writes the numbers of leaves.
struct Ids<'a, T> {
    ids: &'a [u32],
    trees: Range<usize>,
    out: &'a mut [T],
    /// The first row, and the number of rows, of each block in progress.
    blocks: Vec<(usize, usize)>,
}

impl<T: LeafId> Leaves for Ids<'_, T> {
    fn begin(&mut self, block: usize, first: usize, count: usize) {
        self.blocks.resize(self.blocks.len().max(block + 1), (0, 0));
        self.blocks[block] = (first, count);
    }

    #[inline(always)]
    fn of_rows<V: Vectors>(&mut self, vectors: V, block: usize, tree: usize, leaves: V::Words) {
        let (first, count) = self.blocks[block];
        for (row, leaf) in vectors.store(leaves)[..count].iter().enumerate() {
            self.of_trees(first + row, tree, &[*leaf]);
        }
    }

    fn end(&mut self, _: usize, _: usize, _: usize) {}

    #[inline(always)]
    fn of_trees(&mut self, row: usize, tree: usize, leaves: &[u32]) {
        let first = row * self.trees.len() + tree - self.trees.start;
        for (out, leaf) in self.out[first..].iter_mut().zip(leaves) {
            *out = T::of(self.ids[*leaf as usize]);
        }
    }
}

#[cfg(test)]
mod tests;
