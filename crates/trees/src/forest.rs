//! The trees of a model, and the ways to score with them.

mod view;

use std::ops::Range;

use crate::{
    Error,
    budget::Budget,
    compact::{Compact, used},
    kernel::{Choice, LANES, Leaves, Vectors},
    oblivious::Oblivious,
    real::Real,
    rows::{Input, Row},
    slots::Slots,
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

    /// The slots of the features that splits use.
    pub(crate) fn slots(&self, budget: &mut Budget) -> Result<Slots, Error> {
        match self {
            Self::Any(trees) => {
                let features = used(trees, budget)?;
                let slots = Slots::new(&features, budget)?;
                budget.release::<u32>(features.capacity());
                Ok(slots)
            }
            Self::Compact(compact, _) => Slots::new(&compact.features, budget),
            Self::Oblivious(oblivious) => {
                let features = oblivious.features(budget)?;
                let slots = Slots::new(&features, budget)?;
                budget.release::<u32>(features.capacity());
                Ok(slots)
            }
        }
    }

    /// Calls `visit` for each node, tree after tree, with its tree and its number in the file.
    /// Oblivious trees have no nodes but leaves.
    pub(crate) fn for_each_node(&self, mut visit: impl FnMut(usize, u32)) {
        match self {
            Self::Any(trees) => {
                for (tree, nodes) in trees.iter().map(|tree| &tree.nodes).enumerate() {
                    nodes.iter().for_each(|node| visit(tree, node.id));
                }
            }
            Self::Compact(compact, _) => {
                let ids = &compact.ids;
                let ends = compact.roots.iter().skip(1).map(|root| *root as usize);
                let ranges = compact.roots.iter().zip(ends.chain([ids.len()])).enumerate();
                for (tree, (root, end)) in ranges {
                    ids[*root as usize..end].iter().for_each(|id| visit(tree, *id));
                }
            }
            Self::Oblivious(oblivious) => oblivious.for_each_leaf(visit),
        }
    }

    /// Adds the values of the leaves of `trees` to `sums`, which has an element for each row and
    /// output, of the type of the leaves. The output of each tree is in `groups`.
    pub(crate) fn add<T: Real>(
        &self,
        rows: Input<'_>,
        trees: Range<usize>,
        groups: &[u32],
        outputs: usize,
        sums: &mut [T],
    ) {
        match self {
            Self::Any(all) => {
                rows.for_each(|at, row| {
                    let sums = &mut sums[at * outputs..][..outputs];
                    walk(&all[trees.clone()], row, &groups[trees.clone()], sums);
                });
            }
            Self::Compact(compact, choice) => {
                let (values, blocks) = (T::values(compact), Vec::new());
                let mut sums = Sums { values, groups, outputs, sums, blocks };
                choice.run(compact, rows, trees, &mut sums);
            }
            Self::Oblivious(oblivious) => T::add_oblivious(oblivious, rows, trees, sums),
        }
    }

    /// Writes a number for the leaf of each of `trees`, row after row: its number in the file, or
    /// that in `numbers`, which has one for each node of all trees.
    pub(crate) fn leaves(
        &self,
        rows: Input<'_>,
        trees: Range<usize>,
        numbers: Option<&[u32]>,
        out: &mut [impl LeafId],
    ) {
        match self {
            Self::Any(all) => {
                let first: usize = all[..trees.start].iter().map(|tree| tree.nodes.len()).sum();
                rows.for_each(|at, row| {
                    let (mut root, out) = (first, &mut out[at * trees.len()..]);
                    for (tree, out) in all[trees.clone()].iter().zip(out) {
                        let leaf = tree.leaf(row);
                        let in_file = tree.nodes[leaf].id;
                        *out = LeafId::of(numbers.map_or(in_file, |numbers| numbers[root + leaf]));
                        root += tree.nodes.len();
                    }
                });
            }
            Self::Compact(compact, choice) => {
                let (ids, blocks) = (numbers.unwrap_or(&compact.ids), Vec::new());
                let mut ids = Ids { ids, trees: trees.clone(), out, blocks };
                choice.run(compact, rows, trees, &mut ids);
            }
            Self::Oblivious(oblivious) => {
                oblivious.leaves(rows, trees, |at, tree, leaf| {
                    let number =
                        numbers.map(|numbers| numbers[oblivious.first_leaf(tree) + leaf as usize]);
                    out[at] = LeafId::of(number.unwrap_or(leaf));
                });
            }
        }
    }

    /// The tree with this number.
    pub(crate) fn tree(&self, number: usize) -> View<'_> {
        match self {
            Self::Any(trees) => View::Any(&trees[number]),
            Self::Compact(compact, _) => View::Compact(compact, number),
            Self::Oblivious(_) => View::None,
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
fn walk<T: Real>(trees: &[Tree], row: Row<'_>, groups: &[u32], sums: &mut [T]) {
    for (tree, group) in trees.iter().zip(groups) {
        T::add_leaf(tree, tree.nodes[tree.leaf(row)], *group, sums);
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
