//! Walks lane by lane, without gathers, which take longer than single loads on some processors. All
//! lanes are in progress at once, so that they wait for memory together.

use super::vectors::{Group, LANES};
use crate::compact::{Node, Nodes, Wide};

/// Steps that are taken without looking whether all lanes are in leaves.
const FEW: u32 = 8;

/// Evaluates an expression for each lane. Not a loop, whose counter would cost a part of the time.
macro_rules! each_lane {
    (|$lane:ident| $body:expr) => {
        each_lane!(|$lane| $body; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (|$lane:ident| $body:expr; $($number:literal)*) => {$({
        let $lane: usize = $number;
        $body
    })*};
}

/// A node of either size.
trait Walked: Copy {
    fn slot(self) -> usize;

    /// The child to which a row with `value` goes.
    fn next(self, value: f32) -> u32;

    /// The same for a value that is not missing.
    fn next_of_present(self, value: f32) -> u32;
}

macro_rules! walked {
    ($($node:ty)*) => {$(
        impl Walked for $node {
            #[inline(always)]
            fn slot(self) -> usize {
                self.slot()
            }

            #[inline(always)]
            fn next(self, value: f32) -> u32 {
                self.next(value)
            }

            #[inline(always)]
            fn next_of_present(self, value: f32) -> u32 {
                self.next_of_present(value)
            }
        }
    )*};
}

walked! { Node Wide }

/// Walks that begin in nodes of trees.
pub(super) struct Walks<'a> {
    pub(super) nodes: &'a Nodes,
    /// The root of the tree of each lane.
    pub(super) roots: &'a [u32; LANES],
    /// The longest way to a leaf.
    pub(super) steps: u32,
    /// True if no value is missing.
    pub(super) complete: bool,
}

impl Walks<'_> {
    /// Walks of one row from the nodes `at` to leaves.
    #[inline(always)]
    pub(super) fn of_row(&self, at: &mut [u32; LANES], slots: &[f32]) {
        self.walk(at, |slot, _| slots[slot]);
    }

    /// Walks of the rows of a block.
    #[inline(always)]
    pub(super) fn of_rows(&self, at: &mut [u32; LANES], slots: &[Group], block: usize) {
        self.walk(at, |slot, lane| slots[slot][block][lane]);
    }

    /// Walks with the value of a slot in a lane.
    #[inline(always)]
    fn walk(&self, at: &mut [u32; LANES], value: impl Fn(usize, usize) -> f32) {
        match (self.nodes, self.complete) {
            (Nodes::Narrow(nodes), true) => self.through::<_, false>(nodes, at, value),
            (Nodes::Narrow(nodes), false) => self.through::<_, true>(nodes, at, value),
            (Nodes::Wide(nodes), true) => self.through::<_, false>(nodes, at, value),
            (Nodes::Wide(nodes), false) => self.through::<_, true>(nodes, at, value),
        }
    }

    #[inline(always)]
    fn through<N: Walked, const MISSING: bool>(
        &self,
        nodes: &[N],
        at: &mut [u32; LANES],
        value: impl Fn(usize, usize) -> f32,
    ) {
        if self.steps <= FEW {
            for _ in 0..self.steps {
                self.step::<N, MISSING>(nodes, at, &value);
            }
        } else {
            // Some leaves of a deep tree are much closer to the root.
            let mut steps = 0..self.steps;
            while steps.next().is_some() && self.step::<N, MISSING>(nodes, at, &value) != 0 {}
        }
    }

    /// The next nodes. Returns bits that are 0 if all lanes were in leaves before.
    #[inline(always)]
    fn step<N: Walked, const MISSING: bool>(
        &self,
        nodes: &[N],
        at: &mut [u32; LANES],
        value: &impl Fn(usize, usize) -> f32,
    ) -> u32 {
        let mut moved = 0;
        each_lane!(|lane| {
            let node = nodes[at[lane] as usize];
            let value = value(node.slot(), lane);
            let next = if MISSING { node.next(value) } else { node.next_of_present(value) };
            let next = self.roots[lane].wrapping_add(next);
            moved |= next ^ at[lane];
            at[lane] = next;
        });
        moved
    }
}
