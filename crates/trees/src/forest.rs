//! The trees of a model, and the ways to score with them.

mod leaves;
mod linear;
mod view;

use std::ops::Range;

use crate::{
    Error,
    budget::Budget,
    compact::{Compact, used},
    kernel::{Choice, Kind, ObliviousWork, Places, permutes},
    oblivious::Oblivious,
    real::Real,
    rows::{Input, Row},
    slots::Slots,
    tree::Tree,
};
pub(crate) use leaves::LeafId;
use leaves::{Sums, VectorSums};
pub(crate) use view::{Split, View};

/// The trees of a model.
#[derive(Debug)]
pub(crate) enum Forest {
    /// Trees of any kind, walked one row after the other.
    Any(Vec<Tree>),
    /// Trees in a form that kernels walk faster, and the kernels.
    Compact(Compact, Choice),
    /// Trees all of whose nodes of a level have the same split, and the vectors for them.
    Oblivious(Oblivious, Kind),
}

impl Forest {
    pub(crate) fn new(trees: Vec<Tree>, budget: &mut Budget) -> Result<Self, Error> {
        match Compact::features(&trees, budget)? {
            Some(features) => {
                let compact = Compact::build(trees, features, permutes(), budget)?;
                let choice = Choice::fastest(&compact, budget);
                Ok(Self::Compact(compact, choice))
            }
            None => Ok(Self::Any(trees)),
        }
    }

    /// Oblivious trees.
    pub(crate) fn oblivious(all: Oblivious) -> Self {
        let kind = Kind::fastest(&all);
        Self::Oblivious(all, kind)
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
            Self::Oblivious(oblivious, _) => {
                let features = oblivious.features(budget)?;
                let slots = Slots::new(&features, budget)?;
                budget.release::<u32>(features.capacity());
                Ok(slots)
            }
        }
    }

    /// Calls `visit` for each node, tree after tree, with its tree, its number in the file, and true
    /// if it is a leaf. Oblivious trees have no nodes but leaves.
    pub(crate) fn for_each_node(&self, mut visit: impl FnMut(usize, u32, bool)) {
        match self {
            Self::Any(trees) => {
                for (tree, nodes) in trees.iter().map(|tree| &tree.nodes).enumerate() {
                    nodes.iter().for_each(|node| visit(tree, node.id, node.is_leaf()));
                }
            }
            Self::Compact(compact, _) => {
                for tree in 0..compact.roots.len() {
                    for (at, place) in (0..).zip(compact.range(tree)) {
                        let is_leaf = compact.nodes.get(place).left(at).is_none();
                        visit(tree, compact.ids[place], is_leaf);
                    }
                }
            }
            Self::Oblivious(oblivious, _) => {
                oblivious.for_each_leaf(|tree, leaf| visit(tree, leaf, true));
            }
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
            Self::Oblivious(all, kind) => {
                let values = T::of_oblivious(all);
                let work = ObliviousWork { all, rows, trees };
                if outputs == 1 {
                    let (groups, blocks) = (&vec![0; all.len()], Vec::new());
                    kind.oblivious(&work, &mut Sums { values, groups, outputs, sums, blocks });
                } else {
                    let blocks = Vec::new();
                    kind.oblivious(&work, &mut VectorSums { values, outputs, sums, blocks });
                }
            }
        }
    }

    /// Writes the number that the leaf of each of `trees` has in the file, row after row.
    pub(crate) fn leaves(&self, rows: Input<'_>, trees: Range<usize>, out: &mut [impl LeafId]) {
        match self {
            Self::Any(all) => rows.for_each(|at, row| {
                for (tree, out) in all[trees.clone()].iter().zip(&mut out[at * trees.len()..]) {
                    *out = LeafId::of(tree.nodes[tree.leaf(row)].id);
                }
            }),
            Self::Compact(compact, choice) => {
                let find = |rows: Input<'_>, trees, places: &mut Places<'_>| {
                    choice.run(compact, rows, trees, places);
                };
                for_each_part(rows, trees.clone(), find, |row, part, places| {
                    let out = &mut out[row * trees.len() + part.start - trees.start..];
                    for (out, place) in out.iter_mut().zip(places) {
                        *out = LeafId::of(compact.ids[*place as usize]);
                    }
                });
            }
            Self::Oblivious(all, kind) => {
                let find = |rows: Input<'_>, trees, places: &mut Places<'_>| {
                    kind.oblivious(&ObliviousWork { all, rows, trees }, places);
                };
                for_each_part(rows, trees.clone(), find, |row, part, places| {
                    let out = &mut out[row * trees.len() + part.start - trees.start..];
                    for ((out, place), tree) in out.iter_mut().zip(places).zip(part) {
                        *out = LeafId::of(*place - all.first_leaf(tree) as u32);
                    }
                });
            }
        }
    }

    /// Writes the place of the leaf of each of `trees` among all nodes in the order of
    /// [`Self::for_each_node`], tree after tree.
    pub(crate) fn leaf_places(&self, rows: Input<'_>, trees: Range<usize>, out: &mut [u32]) {
        let count = rows.len();
        match self {
            Self::Any(all) => {
                let before: usize = all[..trees.start].iter().map(|tree| tree.nodes.len()).sum();
                rows.for_each(|at, row| {
                    let (mut root, out) = (before, out[at..].iter_mut().step_by(count));
                    for (tree, out) in all[trees.clone()].iter().zip(out) {
                        *out = (root + tree.leaf(row)) as u32;
                        root += tree.nodes.len();
                    }
                });
            }
            Self::Compact(compact, choice) => {
                let mut places = Places::by_tree(trees.clone(), count, out);
                choice.run(compact, rows, trees, &mut places);
            }
            Self::Oblivious(all, kind) => {
                let mut places = Places::by_tree(trees.clone(), count, out);
                kind.oblivious(&ObliviousWork { all, rows, trees }, &mut places);
            }
        }
    }

    /// The tree with this number.
    pub(crate) fn tree(&self, number: usize) -> View<'_> {
        match self {
            Self::Any(trees) => View::Any(&trees[number]),
            Self::Compact(compact, _) => View::Compact(compact, number),
            Self::Oblivious(..) => View::None,
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Any(trees) => trees.iter().map(Tree::memory).sum(),
            Self::Compact(compact, _) => compact.memory(),
            Self::Oblivious(oblivious, _) => oblivious.memory(),
        }
    }
}

/// Rows and trees whose leaves are found at once: the memory for their places is bounded.
const ROWS: usize = 64;
const TREES: usize = 256;

/// Finds the places of leaves, part by part: `find` writes those of some rows and trees, and `take`
/// gets the number of each row, the trees, and their places.
fn for_each_part(
    rows: Input<'_>,
    trees: Range<usize>,
    mut find: impl FnMut(Input<'_>, Range<usize>, &mut Places<'_>),
    mut take: impl FnMut(usize, Range<usize>, &[u32]),
) {
    let mut places = vec![0; ROWS.min(rows.len()) * TREES.min(trees.len())];
    for first in (0..rows.len()).step_by(ROWS) {
        let some = first..rows.len().min(first + ROWS);
        for tree in trees.clone().step_by(TREES) {
            let part = tree..trees.end.min(tree + TREES);
            let places = &mut places[..some.len() * part.len()];
            let input = rows.slice(some.clone());
            find(input, part.clone(), &mut Places::by_row(part.clone(), places));
            for (row, places) in some.clone().zip(places.chunks_exact(part.len())) {
                take(row, part.clone(), places);
            }
        }
    }
}

/// Adds the leaves of one row. The reference for the kernels.
fn walk<T: Real>(trees: &[Tree], row: Row<'_>, groups: &[u32], sums: &mut [T]) {
    for (tree, group) in trees.iter().zip(groups) {
        T::add_leaf(tree, tree.nodes[tree.leaf(row)], *group, sums);
    }
}

#[cfg(test)]
mod tests;
