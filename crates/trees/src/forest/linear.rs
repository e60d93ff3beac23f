//! Sums of leaves of which some have linear models.

use std::ops::Range;

use super::{Forest, for_each_part};
use crate::{kernel::Places, linear::LinearRows, real::Real as _, rows::Input};

impl Forest {
    /// Adds the values of the leaves of `trees` to `sums` as [`Self::add`] does. Leaves with a
    /// model in `linear` have its value. The leaves are found by the kernels, and then each row
    /// takes their values in the order of the trees. Oblivious trees have no such leaves.
    pub(crate) fn add_linear(
        &self,
        linear: LinearRows<'_>,
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
                        sums[*group as usize] += linear.value(root + leaf, plain, at);
                        root += tree.nodes.len();
                    }
                });
            }
            Self::Compact(compact, choice) => {
                let values = f64::values(compact);
                let find = |rows: Input<'_>, trees, places: &mut Places<'_>| {
                    choice.run(compact, rows, trees, places);
                };
                for_each_part(rows, trees, find, |row, part, places| {
                    let sums = &mut sums[row * outputs..][..outputs];
                    for (place, group) in places.iter().zip(&groups[part]) {
                        let place = *place as usize;
                        sums[*group as usize] += linear.value(place, values[place], row);
                    }
                });
            }
            Self::Oblivious(..) => {}
        }
    }
}
