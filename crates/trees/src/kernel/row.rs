//! One row across many trees.
//!
//! A walk from node to node waits for memory at each step. Walks through several trees wait
//! together: each lane of a vector is in a tree of its own.

use super::{
    Leaves, STRIDE, Work, lanes,
    vectors::{LANES, Vectors},
};
use crate::{compact::Compact, rows::Input};

/// Vectors of walks that are in progress at once.
const VECTORS: usize = 2;

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

/// Finds the leaves of all trees for one row after the other.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[inline(always)]
pub(super) fn run<V: Vectors>(vectors: V, work: &Work<'_>, leaves: &mut impl Leaves) {
    let compact = work.compact;
    let mut slots = vec![f32::NAN; compact.features.len()];
    for at in work.scored.clone() {
        let values = values(work, at, &mut slots);
        let mut first = work.trees.start;
        let (groups, rest) = compact.roots[work.trees.clone()].as_chunks::<{ LANES * VECTORS }>();
        for roots in groups {
            let (roots, _) = roots.as_chunks::<LANES>();
            let found = walk::<V, VECTORS>(vectors, compact, values, first, |at| roots[at]);
            for found in found {
                leaves.of_trees(at, first, &vectors.store(found));
                first += LANES;
            }
        }
        for roots in rest.chunks(LANES) {
            let mut filled = [roots[0]; LANES];
            filled[..roots.len()].copy_from_slice(roots);
            let [found] = walk::<V, 1>(vectors, compact, values, first, |_| filled);
            leaves.of_trees(at, first, &vectors.store(found)[..roots.len()]);
            first += roots.len();
        }
        empty(work, at, &mut slots);
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

/// The values of the slots in a dense row. Where they are its first values, nothing is copied.
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

/// Walks through `N` vectors of trees, the first of which is `first`, and returns the leaves.
#[inline(always)]
fn walk<V: Vectors, const N: usize>(
    vectors: V,
    compact: &Compact,
    slots: &[f32],
    first: usize,
    roots: impl Fn(usize) -> [u32; LANES],
) -> [V::Words; N] {
    let end = (first + N * LANES).min(compact.depths.len());
    let depth = compact.depths[first..end].iter().copied().max().unwrap_or(0);
    let mut at = [vectors.splat(0); N];
    for (number, at) in at.iter_mut().enumerate() {
        *at = vectors.load(&roots(number));
    }
    for step in 0..depth {
        let before = at;
        for (number, at) in at.iter_mut().enumerate() {
            let roots = vectors.load(&roots(number));
            *at = compact.nodes.step_of_row(vectors, roots, *at, slots);
        }
        if step % STRIDE == STRIDE - 1 && (0..N).all(|each| vectors.equal(at[each], before[each])) {
            break;
        }
    }
    at
}
