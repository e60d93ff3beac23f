//! Blocks of rows through one tree after the other.
//!
//! The rows of a block are transposed, so that the values of one slot in all rows are a vector. The
//! top of a tree is compared at once (`compact::top`), and only deeper levels are walked. Several
//! blocks go through a tree while it is in the processor's caches.

use super::{
    Leaves, STRIDE, Work, lanes,
    vectors::{LANES, Slot, Vectors},
};
use crate::{
    compact::{Compact, LEVELS, Top},
    rows::Input,
};

/// Blocks that go through a tree one after the other, if their values fit into a cache.
pub(super) const BLOCKS: usize = 4;

/// Slots of all blocks that fit into a cache.
pub(super) const SLOTS: usize = 32 * 1024 / size_of::<Slot>();

/// Finds the leaves of all trees for blocks of rows. The last block may have fewer rows. Below the
/// tops of trees, nodes are gathered, or walked lane by lane.
#[inline(always)]
pub(super) fn run<V: Vectors, const GATHERS: bool>(
    vectors: V,
    work: &Work<'_>,
    leaves: &mut impl Leaves,
) {
    let width = work.compact.features.len();
    let most = (SLOTS / width.max(1)).clamp(1, BLOCKS).min(work.scored.len().div_ceil(LANES));
    let mut slots = vec![[f32::NAN; LANES]; width * most];
    let mut first = work.scored.start;
    while first < work.scored.end {
        let end = (first + most * LANES).min(work.scored.end);
        let blocks = (end - first).div_ceil(LANES);
        let place = |block: usize| {
            let first = first + block * LANES;
            (first, LANES.min(end - first))
        };
        let mut complete = [true; BLOCKS];
        for (block, complete) in complete[..blocks].iter_mut().enumerate() {
            let (first, count) = place(block);
            let slots = &mut slots[block * width..][..width];
            fill(work, first, count, slots);
            leaves.begin(block, first, count);
            let is_missing = |slot: &Slot| slot.iter().fold(false, |any, x| any | x.is_nan());
            *complete = !GATHERS && !slots.iter().any(is_missing);
        }
        for tree in work.trees.clone() {
            for block in 0..blocks {
                let slots = &slots[block * width..][..width];
                let found = walk::<V, GATHERS>(vectors, work.compact, slots, tree, complete[block]);
                leaves.of_rows(vectors, block, tree, found);
            }
        }
        for block in 0..blocks {
            let (first, count) = place(block);
            clear(work, first, count, &mut slots[block * width..][..width]);
            leaves.end(block, first, count);
        }
        first = end;
    }
}

/// Puts the values of `count` rows into lanes. Other lanes may have values of other rows.
#[inline(always)]
fn fill(work: &Work<'_>, first: usize, count: usize, slots: &mut [Slot]) {
    match work.rows {
        Input::Dense(rows) => {
            for (lane, row) in rows.iter().skip(first).take(count).enumerate() {
                for (slot, feature) in slots.iter_mut().zip(&work.compact.features) {
                    slot[lane] = Work::value(row, *feature);
                }
            }
        }
        Input::Sparse(rows) => {
            for (lane, row) in (first..first + count).enumerate() {
                rows.entries(row).for_each(|(slot, value)| slots[slot][lane] = value);
            }
        }
    }
}

/// Makes the values of `count` sparse rows missing again. Those of dense rows are overwritten.
#[inline(always)]
fn clear(work: &Work<'_>, first: usize, count: usize, slots: &mut [Slot]) {
    if let Input::Sparse(rows) = work.rows {
        for (lane, row) in (first..first + count).enumerate() {
            rows.entries(row).for_each(|(slot, _)| slots[slot][lane] = f32::NAN);
        }
    }
}

/// The leaves of one tree, for all rows of a block, which is `complete` if no value is missing.
#[inline(always)]
fn walk<V: Vectors, const GATHERS: bool>(
    vectors: V,
    compact: &Compact,
    slots: &[Slot],
    tree: usize,
    complete: bool,
) -> V::Words {
    let top = &compact.tops[tree];
    let exits = vectors.lookup(&top.exits, exits(vectors, compact, slots, top));
    let root = vectors.splat(compact.roots[tree]);
    let mut at = vectors.add_words(root, exits);
    let depth = compact.depths[tree];
    if !GATHERS && depth > LEVELS {
        let (roots, steps) = (&[compact.roots[tree]; LANES], depth - LEVELS);
        let mut found = vectors.store(at);
        lanes::Walks { nodes: &compact.nodes, roots, steps, complete }.of_rows(&mut found, slots);
        return vectors.load(&found);
    }
    for step in LEVELS..depth {
        let before = at;
        at = compact.nodes.step_of_rows(vectors, root, at, slots);
        if step % STRIDE == STRIDE - 1 && vectors.equal(at, before) {
            break;
        }
    }
    at
}

/// The exits that remain for each row. A missing value is in no relation to a threshold, so each
/// comparison sends it in the default direction of its splits.
#[inline(always)]
fn exits<V: Vectors>(vectors: V, compact: &Compact, slots: &[Slot], top: &Top) -> V::Words {
    let mut exits = vectors.splat(u32::MAX);
    let [left, right, end] = [top.left, top.right, top.end].map(|at| at as usize);
    for record in &compact.records[left..right] {
        let values = vectors.load_floats(&slots[record.slot as usize]);
        exits = vectors.clear_if_not_less(exits, values, record.threshold, record.clear);
    }
    for record in &compact.records[right..end] {
        let values = vectors.load_floats(&slots[record.slot as usize]);
        exits = vectors.clear_unless_less(exits, values, record.threshold, record.clear);
    }
    exits
}
