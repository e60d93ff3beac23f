//! Blocks of rows through one tree after the other.
//!
//! The rows of a block are transposed, so that the values of one slot in all rows are a vector. The
//! top of a tree is compared at once (`compact::top`), for a group of blocks at a time. Vectors that
//! permute find the nodes of the next levels in tables (`compact::tables`), and only deeper levels
//! are walked.

use std::ops::Range;

use super::{
    Leaves, STRIDE, Work, lanes,
    vectors::{BLOCKS, Group, LANES, Vectors},
};
use crate::{
    compact::{Compact, LEVELS, Part, Top},
    rows::Input,
};

/// Bytes of the values of the rows that go through the trees together. They fit into the second
/// cache of processors for servers.
const BYTES: usize = 256 * 1024;

/// Trees that a group of blocks goes through before the next group. So the values of the group are
/// in the first cache for all of them, and the trees in the second one for the next group.
const TREES: usize = 8;

/// Finds the leaves of all trees for blocks of rows. The last block may have fewer rows. Below the
/// tables of trees, nodes are gathered, or walked lane by lane.
#[inline(always)]
pub(super) fn run<V: Vectors, const GATHERS: bool>(
    vectors: V,
    work: &Work<'_>,
    leaves: &mut impl Leaves,
) {
    let width = work.compact.features.len();
    let needed = work.scored.len().div_ceil(BLOCKS * LANES);
    let groups = (BYTES / size_of::<Group>() / width.max(1)).clamp(1, needed.max(1));
    let mut slots = vec![[[f32::NAN; LANES]; BLOCKS]; width * groups];
    let mut complete = vec![[false; BLOCKS]; groups];
    let mut first = work.scored.start;
    while first < work.scored.end {
        let end = (first + groups * BLOCKS * LANES).min(work.scored.end);
        let blocks = (end - first).div_ceil(LANES);
        let place = |block: usize| {
            let first = first + block * LANES;
            (first, LANES.min(end - first))
        };
        let of_group = |group: usize| group * width..(group + 1) * width;
        for block in 0..blocks {
            let (first, count) = place(block);
            let (group, at) = (block / BLOCKS, block % BLOCKS);
            let slots = &mut slots[of_group(group)];
            fill(work, first, count, slots, at);
            complete[group][at] = !GATHERS && is_complete(slots, at);
            leaves.begin(block, first, count);
        }
        for tree in work.trees.clone().step_by(TREES) {
            let trees = tree..(tree + TREES).min(work.trees.end);
            for first in (0..blocks).step_by(BLOCKS) {
                let (number, compact, trees) = (first / BLOCKS, work.compact, trees.clone());
                let complete = complete[number];
                let group = Blocks { slots: &slots[of_group(number)], complete, first };
                match blocks - first {
                    1 => group.through::<V, GATHERS, 1>(vectors, compact, trees, leaves),
                    2 => group.through::<V, GATHERS, 2>(vectors, compact, trees, leaves),
                    3 => group.through::<V, GATHERS, 3>(vectors, compact, trees, leaves),
                    _ => group.through::<V, GATHERS, BLOCKS>(vectors, compact, trees, leaves),
                }
            }
        }
        for block in 0..blocks {
            let (first, count) = place(block);
            clear(work, first, count, &mut slots[of_group(block / BLOCKS)], block % BLOCKS);
            leaves.end(block, first, count);
        }
        first = end;
    }
}

/// Puts the values of `count` rows into lanes. Other lanes may have values of other rows.
#[inline(always)]
fn fill(work: &Work<'_>, first: usize, count: usize, slots: &mut [Group], block: usize) {
    match work.rows {
        Input::Dense(rows) => {
            for (lane, row) in rows.iter().skip(first).take(count).enumerate() {
                for (slot, feature) in slots.iter_mut().zip(&work.compact.features) {
                    slot[block][lane] = Work::value(row, *feature);
                }
            }
        }
        Input::Sparse(rows) => {
            for (lane, row) in (first..first + count).enumerate() {
                rows.entries(row).for_each(|(slot, value)| slots[slot][block][lane] = value);
            }
        }
    }
}

/// True if no value of the block is missing.
#[inline(always)]
fn is_complete(slots: &[Group], block: usize) -> bool {
    let is_missing = |group: &Group| group[block].iter().fold(false, |any, x| any | x.is_nan());
    !slots.iter().any(is_missing)
}

/// Makes the values of `count` sparse rows missing again. Those of dense rows are overwritten.
#[inline(always)]
fn clear(work: &Work<'_>, first: usize, count: usize, slots: &mut [Group], block: usize) {
    if let Input::Sparse(rows) = work.rows {
        for (lane, row) in (first..first + count).enumerate() {
            rows.entries(row).for_each(|(slot, _)| slots[slot][block][lane] = f32::NAN);
        }
    }
}

/// A group of blocks.
struct Blocks<'a> {
    slots: &'a [Group],
    /// True for each block of which no value is known to be missing. Only walks lane by lane ask.
    complete: [bool; BLOCKS],
    /// The number of the first block.
    first: usize,
}

impl Blocks<'_> {
    /// Finds the leaves of `trees` for the first `N` blocks of the group.
    #[inline(always)]
    fn through<V: Vectors, const GATHERS: bool, const N: usize>(
        &self,
        vectors: V,
        compact: &Compact,
        trees: Range<usize>,
        leaves: &mut impl Leaves,
    ) {
        for tree in trees {
            let exits = self.exits::<V, N>(vectors, compact, &compact.tops[tree]);
            let nodes = compact.range(tree);
            for (block, exits) in exits.into_iter().enumerate() {
                let exits = vectors.lowest(exits);
                let found = self.walk::<V, GATHERS>(vectors, compact, tree, block, exits);
                leaves.of_rows(vectors, self.first + block, tree, nodes.clone(), found);
            }
        }
    }

    /// The leaves of a tree for the rows of a block, which leave its top by `exits`.
    #[inline(always)]
    fn walk<V: Vectors, const GATHERS: bool>(
        &self,
        vectors: V,
        compact: &Compact,
        tree: usize,
        block: usize,
        exits: V::Words,
    ) -> V::Words {
        let tables = if V::PERMUTES { compact.tables.levels(tree) } else { &[] };
        let (at, level) = match tables {
            [] => (vectors.lookup(&compact.tops[tree].exits, exits), LEVELS),
            _ => self.through_tables::<V, GATHERS>(vectors, tables, exits, block),
        };
        let root = vectors.splat(compact.roots[tree]);
        let (mut at, depth) = (vectors.add_words(root, at), compact.depths[tree]);
        if !GATHERS && depth > level {
            let roots = &[compact.roots[tree]; LANES];
            let mut found = vectors.store(at);
            let (nodes, steps, complete) = (&compact.nodes, depth - level, self.complete[block]);
            let walks = lanes::Walks { nodes, roots, steps, complete };
            walks.of_rows(&mut found, self.slots, block);
            return vectors.load(&found);
        }
        for level in level..depth {
            let before = at;
            at = compact.nodes.step_of_rows(vectors, root, at, self.slots, block);
            if level % STRIDE == STRIDE - 1 && vectors.equal(at, before) {
                break;
            }
        }
        at
    }

    /// The nodes below the levels that have tables, with the tree's root as 0, and their level.
    #[inline(always)]
    fn through_tables<V: Vectors, const GATHERS: bool>(
        &self,
        vectors: V,
        tables: &[Part],
        exits: V::Words,
        block: usize,
    ) -> (V::Words, u32) {
        let slots = self.slots;
        let (first, rest) = tables.split_first_chunk::<2>().expect("the table of 32 nodes");
        let [at, child] = vectors.step_by_table::<2, GATHERS>(first, exits, slots, block);
        let Some((second, rest)) = rest.split_first_chunk::<4>() else {
            return (child, LEVELS + 1);
        };
        let [at, child] = vectors.step_by_table::<4, GATHERS>(second, at, slots, block);
        let Some(third) = rest.first_chunk::<8>() else { return (child, LEVELS + 2) };
        let [_, child] = vectors.step_by_table::<8, GATHERS>(third, at, slots, block);
        (child, LEVELS + 3)
    }

    /// The exits that remain for each row of the first `N` blocks. A missing value is in no relation
    /// to a threshold, so each comparison sends it in the default direction of its splits.
    #[inline(always)]
    fn exits<V: Vectors, const N: usize>(
        &self,
        vectors: V,
        compact: &Compact,
        top: &Top,
    ) -> [V::Words; N] {
        let mut exits = [vectors.splat(u32::MAX); N];
        let [left, right, end] = [top.left, top.right, top.end].map(|at| at as usize);
        for record in &compact.records[left..right] {
            let group = &self.slots[record.slot as usize];
            for (exits, values) in exits.iter_mut().zip(group) {
                let values = vectors.load_floats(values);
                *exits = vectors.clear_if_not_less(*exits, values, record.threshold, record.clear);
            }
        }
        for record in &compact.records[right..end] {
            let group = &self.slots[record.slot as usize];
            for (exits, values) in exits.iter_mut().zip(group) {
                let values = vectors.load_floats(values);
                *exits = vectors.clear_unless_less(*exits, values, record.threshold, record.clear);
            }
        }
        exits
    }
}
