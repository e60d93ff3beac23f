//! Sums of leaves of which some have linear models.

use std::ops::Range;

use super::{Forest, Ids};
use crate::{linear::Linear, real::Real as _, rows::Input};

/// Rows and trees whose leaves are found at once: the memory for their places is bounded.
const ROWS: usize = 64;
const TREES: usize = 256;

impl Forest {
    /// Adds the values of the leaves of `trees` to `sums` as [`Self::add`] does. Leaves with a
    /// model in `linear` have its value. The leaves are found by the kernels, and then each row
    /// takes their values in the order of the trees. Oblivious trees have no such leaves.
    pub(crate) fn add_linear(
        &self,
        linear: &Linear,
        rows: Input<'_>,
        trees: Range<usize>,
        groups: &[u32],
        outputs: usize,
        sums: &mut [f64],
    ) {
        match self {
            Self::Any(all) => {
                let before: usize = all[..trees.start].iter().map(|tree| tree.nodes.len()).sum();
                rows.for_each(|at, row| {
                    let (mut root, sums) = (before, &mut sums[at * outputs..][..outputs]);
                    for (tree, group) in all[trees.clone()].iter().zip(&groups[trees.clone()]) {
                        let leaf = tree.leaf(row);
                        let plain = tree.double(tree.nodes[leaf]);
                        sums[*group as usize] += linear.value(root + leaf, plain, row);
                        root += tree.nodes.len();
                    }
                });
            }
            Self::Compact(compact, choice) => {
                let values = f64::values(compact);
                let mut places = vec![0_u32; ROWS.min(rows.len()) * TREES.min(trees.len())];
                for first in (0..rows.len()).step_by(ROWS) {
                    let rows = rows.slice(first..rows.len().min(first + ROWS));
                    for tree in trees.clone().step_by(TREES) {
                        let trees = tree..trees.end.min(tree + TREES);
                        let places = &mut places[..rows.len() * trees.len()];
                        let mut ids = Ids::by_row(trees.clone(), |_, leaf| leaf, places);
                        choice.run(compact, rows, trees.clone(), &mut ids);
                        rows.for_each(|at, row| {
                            let sums = &mut sums[(first + at) * outputs..][..outputs];
                            let places = &places[at * trees.len()..];
                            for (place, group) in places.iter().zip(&groups[trees.clone()]) {
                                let place = *place as usize;
                                sums[*group as usize] += linear.value(place, values[place], row);
                            }
                        });
                    }
                }
            }
            Self::Oblivious(..) => {}
        }
    }
}
