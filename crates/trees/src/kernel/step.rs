//! Steps of walks from nodes to their children.

use super::vectors::{Group, LANES, Vectors};
use crate::compact::{Nodes, Wide};

impl Nodes {
    /// The next nodes of walks of different rows through the tree at `root`.
    #[inline(always)]
    pub(super) fn step_of_rows<V: Vectors>(
        &self,
        vectors: V,
        root: V::Words,
        at: V::Words,
        slots: &[Group],
        block: usize,
    ) -> V::Words {
        match self {
            Self::Narrow(nodes) => vectors.step_of_rows(nodes, root, at, slots, block),
            Self::Wide(nodes) => {
                step(vectors, nodes, root, at, |node, lane| slots[node.slot()][block][lane])
            }
        }
    }

    /// The next nodes of walks of one row through the trees at `roots`.
    #[inline(always)]
    pub(super) fn step_of_row<V: Vectors, const N: usize>(
        &self,
        vectors: V,
        roots: V::Words,
        at: V::Words,
        slots: &[f32],
    ) -> V::Words {
        match self {
            Self::Narrow(nodes) => vectors.step_of_row::<N>(nodes, roots, at, slots),
            Self::Wide(nodes) => step(vectors, nodes, roots, at, |node, _| slots[node.slot()]),
        }
    }
}

/// The next nodes of walks over wide nodes, lane by lane: such models are larger than caches, and
/// the lanes wait for memory together as they do in a gather. `value` returns the value for a node
/// in a lane.
#[inline(always)]
fn step<V: Vectors>(
    vectors: V,
    nodes: &[Wide],
    roots: V::Words,
    at: V::Words,
    value: impl Fn(Wide, usize) -> f32,
) -> V::Words {
    let (roots, at) = (vectors.store(roots), vectors.store(at));
    let mut next = [0; LANES];
    for (lane, next) in next.iter_mut().enumerate() {
        let node = nodes[at[lane] as usize];
        *next = roots[lane] + node.next(value(node, lane));
    }
    vectors.load(&next)
}
