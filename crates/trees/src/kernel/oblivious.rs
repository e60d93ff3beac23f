//! Rows through oblivious trees: blocks through one tree after the other, or a row by itself.
//!
//! All rows of a block meet the same splits, so nothing but the values of leaves is gathered.

use std::ops::Range;

use super::{
    Leaves,
    vectors::{BLOCKS, LANES, Slot, Vectors},
};
use crate::{oblivious::Oblivious, rows::Input};

/// Rows that are faster by themselves than in a block that is not full.
const ALONE: usize = 4;

/// Slots of all blocks that fit into a cache.
const SLOTS: usize = 32 * 1024 / size_of::<Slot>();

/// Work for the kernel.
#[derive(Clone)]
pub(crate) struct ObliviousWork<'a> {
    pub(crate) all: &'a Oblivious,
    pub(crate) rows: Input<'a>,
    pub(crate) trees: Range<usize>,
}

/// Finds the leaves of all trees. They have numbers among those of all trees.
#[inline(always)]
pub(super) fn run<V: Vectors>(vectors: V, work: &ObliviousWork<'_>, leaves: &mut impl Leaves) {
    let (all, count) = (work.all, work.rows.len());
    let alone = if count % LANES < ALONE { count % LANES } else { 0 };
    let in_blocks = count - alone;
    let width = all.inputs();
    let most = (SLOTS / width.max(1)).clamp(1, BLOCKS).min(in_blocks.div_ceil(LANES));
    let mut slots = vec![[0.0; LANES]; width * most];
    let mut first = 0;
    while first < in_blocks {
        let end = (first + most * LANES).min(in_blocks);
        fill(work, first..end, &mut slots);
        let places = (first..end).step_by(LANES).map(|first| (first, LANES.min(end - first)));
        for (block, (first, count)) in places.clone().enumerate() {
            leaves.begin(block, first, count);
        }
        for tree in work.trees.clone() {
            for block in 0..places.len() {
                let found = find(vectors, all, tree, &slots[block * width..][..width]);
                let all = all.first_leaf(tree)..all.first_leaf(tree + 1);
                leaves.of_rows(vectors, block, tree, all, found);
            }
        }
        for (block, (first, count)) in places.enumerate() {
            leaves.end(block, first, count);
        }
        first = end;
    }
    one_by_one(work, in_blocks..count, leaves);
}

/// Puts the values of rows into lanes of one block after the other.
fn fill(work: &ObliviousWork<'_>, some: Range<usize>, slots: &mut [Slot]) {
    let (first, width) = (some.start, work.all.inputs());
    work.rows.for_each_of(some, |at, row| {
        let (block, lane) = ((at - first) / LANES, (at - first) % LANES);
        let slots = &mut slots[block * width..][..width];
        slots.iter_mut().zip(work.all.values_of(row)).for_each(|(slot, value)| slot[lane] = value);
    });
}

/// The leaves of one tree, for all rows of a block.
#[inline(always)]
fn find<V: Vectors>(vectors: V, all: &Oblivious, tree: usize, slots: &[Slot]) -> V::Words {
    let mut bits = vectors.splat(0);
    for (level, split) in all.splits(tree).iter().enumerate() {
        let values = vectors.load_floats(&slots[split.input as usize]);
        bits = vectors.set_if_greater(bits, values, split.border, 1 << level);
    }
    vectors.add_words(vectors.splat(all.first_leaf(tree) as u32), bits)
}

/// Finds the leaves for one row after the other.
fn one_by_one(work: &ObliviousWork<'_>, some: Range<usize>, leaves: &mut impl Leaves) {
    let mut values = Vec::with_capacity(work.all.inputs());
    work.rows.for_each_of(some, |at, row| {
        values.clear();
        values.extend(work.all.values_of(row));
        for first in work.trees.clone().step_by(LANES) {
            let trees = first..(first + LANES).min(work.trees.end);
            let mut found = [0; LANES];
            for (found, tree) in found.iter_mut().zip(trees.clone()) {
                *found = work.all.first_leaf(tree) as u32;
                for (level, split) in work.all.splits(tree).iter().enumerate() {
                    *found += u32::from(values[split.input as usize] > split.border) << level;
                }
            }
            leaves.of_trees(at, first, &found[..trees.len()]);
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{
        Budget, Rows, SparseRows,
        forest::Forest,
        kernel::Kind,
        oblivious::{self, Oblivious, Split},
        rows::{Input, Row},
    };

    /// Columns of a row; every second one is an input.
    const COLUMNS: u32 = 8;

    fn number() -> impl Strategy<Value = f32> {
        prop_oneof![
            6 => (0..8_u8).prop_map(|number| f32::from(number) / 2.0),
            1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0]),
        ]
    }

    prop_compose! {
        fn trees(outputs: usize)(
            trees in prop::collection::vec(
                prop::collection::vec((number(), 0..COLUMNS / 2), 0..7), 0..40,
            ),
            missing in prop::collection::vec(number(), COLUMNS as usize / 2),
        ) -> Oblivious {
            let mut budget = Budget::of(u64::MAX);
            let mut all = Oblivious::new(&mut budget).expect("memory");
            for (at, splits) in trees.iter().enumerate() {
                let split = |(border, input): &(f32, u32)| Split { border: *border, input: *input };
                let splits: Vec<_> = splits.iter().map(split).collect();
                let value = |leaf| (at * 1000 + leaf) as f64 / 3.0;
                let values: Vec<_> = (0..outputs << splits.len()).map(value).collect();
                all.push(&splits, &values, &mut budget).expect("memory");
            }
            let input = |(at, missing): (u32, f32)| oblivious::Input { column: 2 * at, missing };
            all.complete((0..).zip(missing).map(input).collect(), outputs).expect("whole trees");
            all
        }
    }

    /// The leaves of a row, by the definition.
    fn leaves(all: &Oblivious, row: &[f32]) -> Vec<u32> {
        let values: Vec<_> = all.values_of(Row::Dense(row)).collect();
        let of_tree = |tree| {
            let bits = all.splits(tree).iter().rev();
            bits.fold(0, |leaf, split| {
                2 * leaf + u32::from(values[split.input as usize] > split.border)
            })
        };
        (0..all.len()).map(of_tree).collect()
    }

    proptest! {
        #[test]
        fn all_vectors_find_the_leaves_of_the_definition(
            (outputs, all) in prop_oneof![Just(1_usize), Just(3)]
                .prop_flat_map(|outputs| (Just(outputs), trees(outputs))),
            rows in (0..70_usize).prop_flat_map(|rows| {
                prop::collection::vec(number(), rows * COLUMNS as usize)
            }),
        ) {
            let width = COLUMNS as usize;
            let (count, trees) = (rows.len() / width, all.len());
            let ids: Vec<_> = (0..rows.len()).map(|at| (at % width) as u64).collect();
            let offsets: Vec<_> = (0..=count).map(|row| (row * width) as u32).collect();
            let sparse = SparseRows::new(&ids, &rows, &offsets).expect("rows");
            let (mut found, mut in_places) = (Vec::new(), Vec::new());
            let mut sums = vec![0.5; count * outputs];
            for (row, sums) in rows.chunks(width).zip(sums.chunks_mut(outputs)) {
                let leaves = leaves(&all, row);
                for (tree, leaf) in leaves.iter().enumerate() {
                    let values = &all.values()[(all.first_leaf(tree) + *leaf as usize) * outputs..];
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
                let places = leaves.iter().zip(0..);
                in_places.extend(places.map(|(leaf, tree)| all.first_leaf(tree) as u32 + leaf));
                found.extend(leaves);
            }
            let mut forest = Forest::oblivious(all);
            let slots = forest.slots(&mut Budget::of(u64::MAX)).expect("memory");
            let dense = Input::Dense(Rows::new(&rows, width).expect("rows"));
            let mut places = Vec::new();
            let sparse = Input::Sparse(slots.place(sparse, None, &mut places));
            for kind in Kind::all() {
                let Forest::Oblivious(_, chosen) = &mut forest else { unreachable!() };
                *chosen = kind;
                for rows in [dense, sparse] {
                    let mut leaves = vec![u32::MAX; found.len()];
                    forest.leaves(rows, 0..trees, &mut leaves);
                    prop_assert_eq!(&leaves, &found, "{:?}", kind);
                    let mut of_trees = vec![u32::MAX; found.len()];
                    forest.leaf_places(rows, 0..trees, &mut of_trees);
                    let by_row = (0..found.len()).map(|at| of_trees[at % trees * count + at / trees]);
                    prop_assert!(by_row.eq(in_places.iter().copied()), "{:?}", kind);
                    let mut added = vec![0.5_f64; sums.len()];
                    forest.add(rows, 0..trees, &[], outputs, &mut added);
                    prop_assert_eq!(&added, &sums, "{:?}", kind);
                }
            }
        }
    }
}
