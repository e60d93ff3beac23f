//! The precision of leaves and their sums.

use std::ops::{AddAssign, Range};

use crate::{
    compact::{Compact, Values},
    kernel::{LANES, Slot, Vectors},
    oblivious::Oblivious,
    tree::{Node, Tree},
};

/// The type of leaves and of their sums: f32 in XGBoost, f64 in LightGBM and CatBoost.
pub(crate) trait Real: Copy + Default + AddAssign {
    /// The value of each node that is a leaf. Empty if leaves are of the other type.
    fn values(compact: &Compact) -> &[Self];

    /// Adds a leaf of a tree to the sums of a row. The output of the tree is `group`.
    fn add_leaf(tree: &Tree, leaf: Node, group: u32, sums: &mut [Self]);

    /// Adds the elements of `values` at `leaves` to the sums of the rows of a block. All leaves are
    /// among `nodes`.
    fn add_leaves<V: Vectors>(
        vectors: V,
        values: &[Self],
        nodes: Range<usize>,
        leaves: V::Words,
        sums: &mut [Self; LANES],
    );

    /// The value of each leaf of oblivious trees. Empty if leaves are of the other type.
    fn of_oblivious(all: &Oblivious) -> &[Self];
}

impl Real for f32 {
    fn values(compact: &Compact) -> &[Self] {
        match &compact.values {
            Values::Single(values) => values,
            Values::Double(_) => &[],
        }
    }

    fn add_leaf(tree: &Tree, leaf: Node, group: u32, sums: &mut [Self]) {
        if tree.width == 1 {
            sums[group as usize] += leaf.value();
        } else {
            sums.iter_mut().zip(tree.vector(leaf)).for_each(|(sum, value)| *sum += value);
        }
    }

    #[inline(always)]
    fn add_leaves<V: Vectors>(
        vectors: V,
        values: &[Self],
        nodes: Range<usize>,
        leaves: V::Words,
        sums: &mut [Self; LANES],
    ) {
        let values = match nodes.len() {
            _ if !V::PERMUTES => None,
            ..=32 => near::<V, 2>(vectors, values, nodes.start, leaves),
            33..=64 => near::<V, 4>(vectors, values, nodes.start, leaves),
            65..=128 => near::<V, 8>(vectors, values, nodes.start, leaves),
            _ => None,
        }
        .unwrap_or_else(|| vectors.gather(values, leaves));
        *sums = vectors.store_floats(vectors.add(vectors.load_floats(sums), values));
    }

    fn of_oblivious(_: &Oblivious) -> &[Self] {
        &[]
    }
}

impl Real for f64 {
    fn values(compact: &Compact) -> &[Self] {
        match &compact.values {
            Values::Double(values) => values,
            Values::Single(_) => &[],
        }
    }

    fn add_leaf(tree: &Tree, leaf: Node, group: u32, sums: &mut [Self]) {
        if tree.width == 1 {
            sums[group as usize] += tree.double(leaf);
        } else {
            let values = tree.vector_of_doubles(leaf);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }

    #[inline(always)]
    fn add_leaves<V: Vectors>(
        vectors: V,
        values: &[Self],
        _: Range<usize>,
        leaves: V::Words,
        sums: &mut [Self; LANES],
    ) {
        vectors.add_doubles(sums, values, leaves);
    }

    fn of_oblivious(all: &Oblivious) -> &[Self] {
        all.values()
    }
}

/// The elements of `values` at `leaves`, which are within `N` vectors from `first` on. None if there
/// are not so many elements.
#[inline(always)]
fn near<V: Vectors, const N: usize>(
    vectors: V,
    values: &[f32],
    first: usize,
    leaves: V::Words,
) -> Option<V::Floats> {
    let (values, _): (&[Slot], _) = values.get(first..)?.as_chunks();
    let leaves = vectors.add_words(leaves, vectors.splat((first as u32).wrapping_neg()));
    Some(vectors.gather_near::<N>(values.first_chunk()?, leaves))
}
