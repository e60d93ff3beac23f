//! The operations of the kernels on vectors of 16 lanes.

pub(crate) use crate::compact::LANES;
use crate::compact::{EXITS, Node, Part, SPLITS};

/// The values of one slot in all rows of a block.
pub(crate) type Slot = [f32; LANES];

/// Blocks of rows that go through a tree together.
pub(crate) const BLOCKS: usize = 4;

/// The values of one slot in all rows of several blocks.
pub(crate) type Group = [Slot; BLOCKS];

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
    /// True if these vectors find elements of a table by permutations. Methods that do are not called
    /// otherwise.
    const PERMUTES: bool;

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

    /// The number of the lowest bit of each of `words`, which are not 0.
    fn lowest(self, words: Self::Words) -> Self::Words;

    /// The elements of `table` at `at`, which are below 32.
    fn lookup(self, table: &[u16; EXITS], at: Self::Words) -> Self::Words;

    /// The elements of `from` at `at`.
    fn gather(self, from: &[f32], at: Self::Words) -> Self::Floats;

    /// The elements of `from` at `at`, of which only the lowest bits count that are enough for `N`
    /// vectors. Only with [`Self::PERMUTES`], and of 2, 4 or 8 vectors.
    fn gather_near<const N: usize>(self, _from: &[Slot; N], _at: Self::Words) -> Self::Floats {
        unreachable!("these vectors have no permutations of tables")
    }

    /// Adds the elements of `from` at `at` to `sums`.
    fn add_doubles(self, sums: &mut [f64; LANES], from: &[f64], at: Self::Words);

    /// The next nodes of walks of different rows through the tree at `root`.
    fn step_of_rows(
        self,
        nodes: &[Node],
        root: Self::Words,
        at: Self::Words,
        slots: &[Group],
        block: usize,
    ) -> Self::Words;

    /// The places in the next level, and the nodes with the tree's root as 0, to which the rows of a
    /// block go from the places `at` of a level. Only with [`Self::PERMUTES`].
    fn step_by_table<const N: usize, const GATHERS: bool>(
        self,
        _table: &[Part; N],
        _at: Self::Words,
        _slots: &[Group],
        _block: usize,
    ) -> [Self::Words; 2] {
        unreachable!("these vectors have no permutations of tables")
    }

    /// The nodes, with the tree's root as 0, to which a row goes from the tops of `M` times 16 trees.
    /// Only with [`Self::PERMUTES`]; `slots` are `N` vectors, 0 for any number.
    fn tops_of_row<const N: usize, const M: usize>(
        self,
        _tops: &[[Part; SPLITS]; M],
        _slots: &[f32],
    ) -> [Self::Words; M] {
        unreachable!("these vectors have no permutations of tables")
    }

    /// The next nodes of walks of one row through the trees at `roots`. `slots` are `N` vectors, 0
    /// for any number.
    fn step_of_row<const N: usize>(
        self,
        nodes: &[Node],
        roots: Self::Words,
        at: Self::Words,
        slots: &[f32],
    ) -> Self::Words;
}
