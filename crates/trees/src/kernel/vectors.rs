//! The operations of the kernels on vectors of 16 lanes.

use crate::compact::{EXITS, Node};

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// The values of one slot in all rows of a block.
pub(crate) type Slot = [f32; LANES];

/// Vectors of a kind of processor. A value of an implementation exists only where the processor
/// has them.
///
/// Methods must be inlined into functions that are compiled for that kind of processor. Indices are
/// checked: one beyond a slice is a panic, not undefined behaviour.
pub(crate) trait Vectors: Copy {
    /// 16 numbers.
    type Floats: Copy;
    /// 16 unsigned integers of 32 bits.
    type Words: Copy;

    fn splat(self, word: u32) -> Self::Words;
    fn load(self, words: &[u32; LANES]) -> Self::Words;
    fn store(self, words: Self::Words) -> [u32; LANES];
    fn add_words(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// True if all lanes are equal.
    fn equal(self, a: Self::Words, b: Self::Words) -> bool;

    fn load_floats(self, floats: &[f32; LANES]) -> Self::Floats;
    fn store_floats(self, floats: Self::Floats) -> [f32; LANES];
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// Clears the bits of `clear` in `exits` where `values` are not less than `threshold`. Missing
    /// values are not less.
    fn clear_unless_less(
        self,
        exits: Self::Words,
        values: Self::Floats,
        threshold: f32,
        clear: u32,
    ) -> Self::Words;

    /// Clears the bits of `clear` in `exits` where `values` are not less than `threshold`, and not
    /// missing.
    fn clear_if_not_less(
        self,
        exits: Self::Words,
        values: Self::Floats,
        threshold: f32,
        clear: u32,
    ) -> Self::Words;

    /// Sets `bit` in the lanes of `words` whose value is greater than `border`.
    fn set_if_greater(
        self,
        words: Self::Words,
        values: Self::Floats,
        border: f32,
        bit: u32,
    ) -> Self::Words;

    /// The element of `table` at the lowest bit of each of `exits`, which are not 0.
    fn lookup(self, table: &[u16; EXITS], exits: Self::Words) -> Self::Words;

    /// The elements of `from` at `at`.
    fn gather(self, from: &[f32], at: Self::Words) -> Self::Floats;

    /// Adds the elements of `from` at `at` to `sums`.
    fn add_doubles(self, sums: &mut [f64; LANES], from: &[f64], at: Self::Words);

    /// The next nodes of walks of different rows through the tree at `root`.
    fn step_of_rows(
        self,
        nodes: &[Node],
        root: Self::Words,
        at: Self::Words,
        slots: &[Slot],
    ) -> Self::Words;

    /// The next nodes of walks of one row through the trees at `roots`.
    fn step_of_row(
        self,
        nodes: &[Node],
        roots: Self::Words,
        at: Self::Words,
        slots: &[f32],
    ) -> Self::Words;
}
