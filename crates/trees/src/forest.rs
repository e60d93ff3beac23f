//! The trees of a model, and the ways to score with them.

use std::ops::Range;

use crate::{
    Error, Rows,
    budget::Budget,
    compact::Compact,
    kernel::{Choice, LANES, Leaves, Vectors},
    oblivious::Oblivious,
    real::Real,
    tree::Tree,
};

/// The trees of a model.
#[derive(Debug)]
pub(crate) enum Forest {
    /// Trees of any kind, walked one row after the other.
    Any(Vec<Tree>),
    /// Trees in a form that kernels walk faster, and the kernels.
    Compact(Compact, Choice),
    /// Trees all of whose nodes of a level have the same split.
    Oblivious(Oblivious),
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
    /// output, of the type of the leaves. The output of each tree is in `groups`.
    pub(crate) fn add<T: Real>(
        &self,
        rows: Rows<'_>,
        trees: Range<usize>,
        groups: &[u32],
        outputs: usize,
        sums: &mut [T],
    ) {
        match self {
            Self::Any(all) => {
                for (row, sums) in rows.iter().zip(sums.chunks_exact_mut(outputs)) {
                    walk(&all[trees.clone()], row, &groups[trees.clone()], sums);
                }
            }
            Self::Compact(compact, choice) => {
                let (values, blocks) = (T::values(compact), Vec::new());
                let mut sums = Sums { values, groups, outputs, sums, blocks };
                choice.run(compact, rows, trees, &mut sums);
            }
            Self::Oblivious(oblivious) => T::add_oblivious(oblivious, rows, trees, sums),
        }
    }

    /// Writes the number of the leaf of each of `trees`, row after row.
    pub(crate) fn leaves(&self, rows: Rows<'_>, trees: Range<usize>, out: &mut [f32]) {
        match self {
            Self::Any(all) => {
                let out = out.chunks_exact_mut(trees.len().max(1));
                for (row, out) in rows.iter().zip(out) {
                    let trees = all[trees.clone()].iter();
                    trees.zip(out).for_each(|(tree, out)| *out = tree.leaf(row).id as f32);
                }
            }
            Self::Compact(compact, choice) => {
                let (ids, blocks) = (&compact.ids, Vec::new());
                let mut ids = Ids { ids, trees: trees.clone(), out, blocks };
                choice.run(compact, rows, trees, &mut ids);
            }
            Self::Oblivious(oblivious) => {
                oblivious.leaves(rows, trees, |at, leaf| out[at] = leaf as f32);
            }
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Any(trees) => trees.iter().map(Tree::memory).sum(),
            Self::Compact(compact, _) => compact.memory(),
            Self::Oblivious(oblivious) => oblivious.memory(),
        }
    }
}

/// Adds the leaves of one row. The reference for the kernels.
fn walk<T: Real>(trees: &[Tree], row: &[f32], groups: &[u32], sums: &mut [T]) {
    for (tree, group) in trees.iter().zip(groups) {
        T::add_leaf(tree, tree.leaf(row), *group, sums);
    }
}

/// Adds up the values of leaves.
struct Sums<'a, T> {
    values: &'a [T],
    groups: &'a [u32],
    outputs: usize,
    /// An element for each row and output.
    sums: &'a mut [T],
    /// The sums of the blocks in progress: for each block and output, those of all rows.
    blocks: Vec<[T; LANES]>,
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
    fn of_rows<V: Vectors>(&mut self, vectors: V, block: usize, tree: usize, leaves: V::Words) {
        let sums = &mut self.blocks[block * self.outputs + self.groups[tree] as usize];
        T::add_leaves(vectors, self.values, leaves, sums);
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

/// Writes the numbers of leaves.
struct Ids<'a> {
    ids: &'a [u32],
    trees: Range<usize>,
    out: &'a mut [f32],
    /// The first row, and the number of rows, of each block in progress.
    blocks: Vec<(usize, usize)>,
}

impl Leaves for Ids<'_> {
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
            *out = self.ids[*leaf as usize] as f32;
        }
    }
}

#[cfg(test)]
mod tests;
