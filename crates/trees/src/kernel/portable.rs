//! Vectors for every processor: loops that the compiler turns into the vectors that there are.

use super::vectors::{Group, LANES, Vectors};
use crate::compact::{EXITS, Node};

/// Vectors as arrays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

/// A vector of the results for each lane.
#[inline(always)]
fn each<T: Copy + Default>(mut lane: impl FnMut(usize) -> T) -> [T; LANES] {
    let mut vector = [T::default(); LANES];
    vector.iter_mut().enumerate().for_each(|(at, result)| *result = lane(at));
    vector
}

impl Vectors for Portable {
    type Floats = [f32; LANES];
    type Words = [u32; LANES];

    const PERMUTES: bool = false;

    #[inline(always)]
    fn splat(self, word: u32) -> [u32; LANES] {
        [word; LANES]
    }

    #[inline(always)]
    fn load(self, words: &[u32; LANES]) -> [u32; LANES] {
        *words
    }

    #[inline(always)]
    fn store(self, words: [u32; LANES]) -> [u32; LANES] {
        words
    }

    #[inline(always)]
    fn add_words(self, a: [u32; LANES], b: [u32; LANES]) -> [u32; LANES] {
        each(|lane| a[lane].wrapping_add(b[lane]))
    }

    #[inline(always)]
    fn equal(self, a: [u32; LANES], b: [u32; LANES]) -> bool {
        a == b
    }

    #[inline(always)]
    fn load_floats(self, floats: &[f32; LANES]) -> [f32; LANES] {
        *floats
    }

    #[inline(always)]
    fn store_floats(self, floats: [f32; LANES]) -> [f32; LANES] {
        floats
    }

    #[inline(always)]
    fn add(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        each(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    fn clear_unless_less(
        self,
        exits: [u32; LANES],
        values: [f32; LANES],
        threshold: f32,
        clear: u32,
    ) -> [u32; LANES] {
        each(|lane| exits[lane] & if values[lane] < threshold { u32::MAX } else { !clear })
    }

    #[inline(always)]
    fn clear_if_not_less(
        self,
        exits: [u32; LANES],
        values: [f32; LANES],
        threshold: f32,
        clear: u32,
    ) -> [u32; LANES] {
        each(|lane| exits[lane] & if values[lane] >= threshold { !clear } else { u32::MAX })
    }

    #[inline(always)]
    fn set_if_greater(
        self,
        words: [u32; LANES],
        values: [f32; LANES],
        border: f32,
        bit: u32,
    ) -> [u32; LANES] {
        each(|lane| words[lane] | if values[lane] > border { bit } else { 0 })
    }

    #[inline(always)]
    fn lowest(self, words: [u32; LANES]) -> [u32; LANES] {
        each(|lane| words[lane].trailing_zeros())
    }

    #[inline(always)]
    fn lookup(self, table: &[u16; EXITS], at: [u32; LANES]) -> [u32; LANES] {
        each(|lane| table[at[lane] as usize % EXITS].into())
    }

    #[inline(always)]
    fn gather(self, from: &[f32], at: [u32; LANES]) -> [f32; LANES] {
        each(|lane| from[at[lane] as usize])
    }

    #[inline(always)]
    fn add_doubles(self, sums: &mut [f64; LANES], from: &[f64], at: [u32; LANES]) {
        sums.iter_mut().zip(at).for_each(|(sum, at)| *sum += from[at as usize]);
    }

    #[inline(always)]
    fn step_of_rows(
        self,
        nodes: &[Node],
        root: [u32; LANES],
        at: [u32; LANES],
        slots: &[Group],
        block: usize,
    ) -> [u32; LANES] {
        each(|lane| {
            let node = nodes[at[lane] as usize];
            root[lane] + node.next(slots[node.slot()][block][lane])
        })
    }

    #[inline(always)]
    fn step_of_row<const N: usize>(
        self,
        nodes: &[Node],
        roots: [u32; LANES],
        at: [u32; LANES],
        slots: &[f32],
    ) -> [u32; LANES] {
        each(|lane| {
            let node = nodes[at[lane] as usize];
            roots[lane] + node.next(slots[node.slot()])
        })
    }
}
