//! One row across many trees.
//!
//! A walk from node to node waits for memory at each step. Walks through several trees wait
//! together: each lane of a vector is in a tree of its own.

use std::ops::Range;

use super::{
    Leaves, STRIDE, Work, lanes,
    vectors::{LANES, Vectors},
};
use crate::{
    compact::{Compact, LEVELS},
    rows::Input,
};

/// Vectors of walks that are in progress at once.
const VECTORS: usize = 4;

/// Finds the leaves of all trees for one row after the other, lane by lane.
pub(super) fn lane_by_lane(work: &Work<'_>, leaves: &mut impl Leaves) {
    let compact = work.compact;
    let mut slots = vec![f32::NAN; compact.features.len()];
    for at in work.scored.clone() {
        let values = values(work, at, &mut slots);
        let complete = !values.iter().fold(false, |any, value| any | value.is_nan());
        for first in work.trees.clone().step_by(LANES) {
            let trees = first..(first + LANES).min(work.trees.end);
            let mut roots = [compact.roots[first]; LANES];
            roots[..trees.len()].copy_from_slice(&compact.roots[trees.clone()]);
            let steps = compact.depths[trees.clone()].iter().copied().max().unwrap_or(0);
            let walks = lanes::Walks { nodes: &compact.nodes, roots: &roots, steps, complete };
            let mut found = roots;
            walks.of_row(&mut found, values);
            leaves.of_trees(at, first, &found[..trees.len()]);
        }
        empty(work, at, &mut slots);
    }
}

/// Finds the leaves of all trees for one row after the other. Below the tops of trees, nodes are
/// gathered.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[inline(always)]
pub(super) fn run<V: Vectors>(vectors: V, work: &Work<'_>, leaves: &mut impl Leaves) {
    // Slots that fit into a table are found without gathers too.
    match work.compact.features.len() {
        ..=32 if V::PERMUTES => each_row::<V, 2>(vectors, work, leaves),
        33..=64 if V::PERMUTES => each_row::<V, 4>(vectors, work, leaves),
        65..=128 if V::PERMUTES => each_row::<V, 8>(vectors, work, leaves),
        _ => each_row::<V, 0>(vectors, work, leaves),
    }
}

/// The same for slots in a table of `N` vectors. With 0 they are gathered.
#[inline(always)]
fn each_row<V: Vectors, const N: usize>(vectors: V, work: &Work<'_>, leaves: &mut impl Leaves) {
    let mut slots = vec![f32::NAN; work.compact.features.len().max(N * LANES)];
    for at in work.scored.clone() {
        let values = values(work, at, &mut slots);
        let walk = RowWalk { vectors, compact: work.compact, trees: &work.trees, at, values };
        // The trees of a vector begin with a multiple of their number, as they do in the tables.
        let end = work.trees.end.div_ceil(LANES);
        let mut number = work.trees.start / LANES;
        while number < end {
            if number + VECTORS <= end {
                walk.through::<N, VECTORS>(number, leaves);
                number += VECTORS;
            } else {
                walk.through::<N, 1>(number, leaves);
                number += 1;
            }
        }
        empty(work, at, &mut slots);
    }
}

/// The walks of one row.
struct RowWalk<'a, V> {
    vectors: V,
    compact: &'a Compact,
    /// The trees that count.
    trees: &'a Range<usize>,
    /// The number of the row.
    at: usize,
    /// The values of the slots in the row.
    values: &'a [f32],
}

impl<V: Vectors> RowWalk<'_, V> {
    /// Walks through `M` vectors of trees, from 16 times `number` on.
    #[inline(always)]
    fn through<const N: usize, const M: usize>(&self, number: usize, leaves: &mut impl Leaves) {
        for (number, found) in (number..).zip(self.leaves::<N, M>(number)) {
            let first = number * LANES;
            let trees = self.trees.start.max(first)..self.trees.end.min(first + LANES);
            leaves.of_trees(self.at, trees.start, &found[trees.start - first..trees.end - first]);
        }
    }

    /// The leaves of `M` vectors of trees, from 16 times `number` on. Lanes behind the last tree are
    /// in the first tree of their vector.
    #[inline(always)]
    fn leaves<const N: usize, const M: usize>(&self, number: usize) -> [[u32; LANES]; M] {
        let (vectors, compact) = (self.vectors, self.compact);
        let all = number * LANES..((number + M) * LANES).min(compact.roots.len());
        let mut roots = [vectors.splat(0); M];
        for (roots, first) in roots.iter_mut().zip(all.clone().step_by(LANES)) {
            let trees = &compact.roots[first..all.end.min(first + LANES)];
            let mut filled = [trees[0]; LANES];
            filled[..trees.len()].copy_from_slice(trees);
            *roots = vectors.load(&filled);
        }
        let (mut at, mut level) = (roots, 0);
        if V::PERMUTES
            && let Some(tops) = compact.tables.tops::<M>(number)
        {
            for (at, child) in at.iter_mut().zip(vectors.tops_of_row::<N, M>(tops, self.values)) {
                *at = vectors.add_words(*at, child);
            }
            level = LEVELS;
        }
        let depth = compact.depths[all].iter().copied().max().unwrap_or(0);
        while level < depth {
            let before = at;
            for (at, roots) in at.iter_mut().zip(roots) {
                *at = compact.nodes.step_of_row::<V, N>(vectors, roots, *at, self.values);
            }
            level += 1;
            if level % STRIDE == 0 && (0..M).all(|each| vectors.equal(at[each], before[each])) {
                break;
            }
        }
        let mut leaves = [[0; LANES]; M];
        for (leaves, at) in leaves.iter_mut().zip(at) {
            *leaves = vectors.store(at);
        }
        leaves
    }
}

/// Makes the values of a sparse row missing again.
#[inline(always)]
fn empty(work: &Work<'_>, at: usize, slots: &mut [f32]) {
    if let Input::Sparse(rows) = work.rows {
        rows.entries(at).for_each(|(slot, _)| slots[slot] = f32::NAN);
    }
}

/// The values of the slots in the row `at`. All `slots` are missing if rows are sparse.
#[inline(always)]
fn values<'a>(work: &Work<'a>, at: usize, slots: &'a mut [f32]) -> &'a [f32] {
    match work.rows {
        Input::Dense(rows) => dense(work.compact, rows.row(at), slots),
        Input::Sparse(rows) => {
            rows.entries(at).for_each(|(slot, value)| slots[slot] = value);
            slots
        }
    }
}

/// The values of the slots in a dense row. Where they are its first values and no table is needed,
/// nothing is copied.
#[inline(always)]
fn dense<'a>(compact: &Compact, row: &'a [f32], slots: &'a mut [f32]) -> &'a [f32] {
    let all = compact.features.last().is_none_or(|last| *last as usize + 1 == slots.len());
    if let (true, Some(row)) = (all, row.get(..slots.len())) {
        return row;
    }
    for (slot, feature) in slots.iter_mut().zip(&compact.features) {
        *slot = Work::value(row, *feature);
    }
    slots
}
