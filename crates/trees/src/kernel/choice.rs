//! The choice between the kernels.
//!
//! Gathers are fast on some processors and slow on others, and the best number of rows for a kernel
//! depends on the model. So the kernels are timed when a model is loaded.

use std::{
    mem::discriminant,
    ops::Range,
    time::{Duration, Instant},
};

#[cfg(target_arch = "x86_64")]
use outrigger_vectors::Width;

use super::{
    Leaves, ObliviousWork, Places, Work, block, oblivious,
    portable::Portable,
    row,
    vectors::{BLOCKS, LANES, Vectors},
};
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
use crate::{Budget, Rows, compact::Compact, oblivious::Oblivious, rows::Input};

/// Turns of all kernels, at least and at most.
const TURNS: Range<usize> = 3..8;

/// Time after which the turns end, if there were enough.
const TIME: Duration = Duration::from_millis(4);

/// The time of a block over that of its rows one by one, from which on blocks are not used.
const NEVER: f64 = 1.25;

/// Trees, and columns of a row, that the choice looks at.
const TREES: usize = 256;
const COLUMNS: usize = 1024;

/// A kind of vectors that the processor has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Kind {
    /// All kinds that this processor has and the environment allows.
    pub(crate) fn all() -> Vec<Self> {
        let portable = Self::Portable(Portable);
        #[cfg(target_arch = "x86_64")]
        {
            let limit = outrigger_vectors::limit();
            let avx2 = Avx2::detect().filter(|_| limit >= Width::Of32).map(Self::Avx2);
            let avx512 = Avx512::detect().filter(|_| limit >= Width::Of64).map(Self::Avx512);
            [Some(portable), avx2, avx512].into_iter().flatten().collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![portable]
    }

    fn permutes(self) -> bool {
        match self {
            Self::Portable(_) => Portable::PERMUTES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Avx2::PERMUTES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Avx512::PERMUTES,
        }
    }

    /// Finds the leaves of oblivious trees.
    pub(crate) fn oblivious(self, work: &ObliviousWork<'_>, leaves: &mut impl Leaves) {
        match self {
            Self::Portable(vectors) => oblivious::run(vectors, work, leaves),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `vectors` exists, so the processor has AVX2.
            Self::Avx2(vectors) => unsafe { oblivious_avx2(vectors, work, leaves) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `vectors` exists, so the processor has these parts of AVX-512.
            Self::Avx512(vectors) => unsafe { oblivious_avx512(vectors, work, leaves) },
        }
    }

    /// The fastest kind for these trees.
    pub(crate) fn fastest(all: &Oblivious) -> Self {
        let values: Vec<_> = (0..LANES * all.inputs()).map(spread).collect();
        let rows = Rows::new(&values, all.inputs()).expect("a whole number of rows");
        let work = ObliviousWork { all, rows: Input::Dense(rows), trees: 0..all.len().min(TREES) };
        let mut times = Times::new(Self::all());
        let mut out = vec![0; LANES * work.trees.len()];
        let mut places = Places::by_row(work.trees.clone(), &mut out);
        in_turns(|| times.measure(|kind| kind.oblivious(&work, &mut places)));
        times.kernels[times.fastest()]
    }
}

/// True if tables of nodes are of use to any vectors that the processor has.
pub(crate) fn permutes() -> bool {
    Kind::all().into_iter().any(Kind::permutes)
}

/// A way to walk through the nodes of trees.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Steps {
    /// The nodes of all lanes are gathered.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Gathers,
    /// Each lane loads its node.
    Lanes,
}

/// A kernel: vectors, and how they walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel(pub(crate) Kind, pub(crate) Steps);

impl Kernel {
    /// All kernels that this processor has. A kind without gathers walks lane by lane.
    pub(crate) fn all() -> Vec<Self> {
        let of_kind = |kind| match kind {
            Kind::Portable(_) => vec![Self(kind, Steps::Lanes)],
            #[cfg(target_arch = "x86_64")]
            _ => vec![Self(kind, Steps::Gathers), Self(kind, Steps::Lanes)],
        };
        Kind::all().into_iter().flat_map(of_kind).collect()
    }

    /// The kernels for single rows. Lane by lane, they need no vectors.
    fn of_row() -> Vec<Self> {
        let is_needed =
            |kernel: &Self| matches!(kernel, Self(_, Steps::Gathers) | Self(Kind::Portable(_), _));
        Self::all().into_iter().filter(is_needed).collect()
    }

    /// The kernels for blocks: those with the widest vectors, which do more at once, and the portable
    /// one, in case wide vectors slow the processor down.
    fn of_block() -> Vec<Self> {
        let mut all = Self::all();
        let widest = all.last().map(|Self(kind, _)| discriminant(kind));
        all.retain(|Self(kind, _)| {
            matches!(kind, Kind::Portable(_)) || widest == Some(discriminant(kind))
        });
        all
    }

    fn row(self, work: &Work<'_>, leaves: &mut impl Leaves) {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `vectors` exists, so the processor has AVX2.
            Self(Kind::Avx2(vectors), Steps::Gathers) => unsafe {
                row_avx2(vectors, work, leaves);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `vectors` exists, so the processor has these parts of AVX-512.
            Self(Kind::Avx512(vectors), Steps::Gathers) => unsafe {
                row_avx512(vectors, work, leaves);
            },
            _ => row::lane_by_lane(work, leaves),
        }
    }

    fn block(self, work: &Work<'_>, leaves: &mut impl Leaves) {
        match self {
            Self(Kind::Portable(vectors), _) => block::run::<_, false>(vectors, work, leaves),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `vectors` exists, so the processor has AVX2.
            Self(Kind::Avx2(vectors), Steps::Gathers) => unsafe {
                block_avx2(vectors, work, leaves);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as before.
            Self(Kind::Avx2(vectors), Steps::Lanes) => unsafe {
                lanes_avx2(vectors, work, leaves);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `vectors` exists, so the processor has these parts of AVX-512.
            Self(Kind::Avx512(vectors), Steps::Gathers) => unsafe {
                block_avx512(vectors, work, leaves);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as before.
            Self(Kind::Avx512(vectors), Steps::Lanes) => unsafe {
                lanes_avx512(vectors, work, leaves);
            },
        }
    }
}

/// Defines functions that are compiled for a kind of processor.
#[cfg(target_arch = "x86_64")]
macro_rules! compiled_for {
    ($($features:literal $vectors:ty: $name:ident($work:ty) = $body:path;)*) => {$(
        #[target_feature(enable = $features)]
        fn $name(vectors: $vectors, work: &$work, leaves: &mut impl Leaves) {
            $body(vectors, work, leaves);
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
compiled_for! {
    "avx2" Avx2: row_avx2(Work<'_>) = row::run;
    "avx2" Avx2: block_avx2(Work<'_>) = block::run::<_, true>;
    "avx2" Avx2: lanes_avx2(Work<'_>) = block::run::<_, false>;
    "avx2" Avx2: oblivious_avx2(ObliviousWork<'_>) = oblivious::run;
    "avx512f,avx512bw,avx512cd" Avx512: row_avx512(Work<'_>) = row::run;
    "avx512f,avx512bw,avx512cd" Avx512: block_avx512(Work<'_>) = block::run::<_, true>;
    "avx512f,avx512bw,avx512cd" Avx512: lanes_avx512(Work<'_>) = block::run::<_, false>;
    "avx512f,avx512bw,avx512cd" Avx512: oblivious_avx512(ObliviousWork<'_>) = oblivious::run;
}

/// The kernels that are used for a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    row: Kernel,
    block: Kernel,
    /// Rows from which on a block is faster, though it is not full, than one row after the other:
    /// where it is the only block, and beside full blocks. More than [`LANES`] if it never is, as
    /// with very many slots, which a block has to fill.
    alone: usize,
    beside: usize,
}

impl Choice {
    /// One kernel for all, and the number of rows from which on a block is used.
    #[cfg(test)]
    pub(crate) fn of(kernel: Kernel, rows: usize) -> Self {
        Self { row: kernel, block: kernel, alone: rows, beside: rows }
    }

    /// Chooses the fastest kernels for these trees. If the budget has no memory for a group of blocks,
    /// which is most of a model only if it has very many features, rows go one by one.
    pub(crate) fn fastest(compact: &Compact, budget: &mut Budget) -> Self {
        let width = compact.features.last().map_or(1, |last| *last as usize + 1).min(COLUMNS);
        let needed = BLOCKS * LANES * (width + compact.features.len());
        if budget.charge::<f32>(needed).is_err() {
            return Self::without_blocks();
        }
        let choice = Self::timed(compact, width);
        budget.release::<f32>(needed);
        choice
    }

    /// The kernel with the widest vectors, for rows alone.
    fn without_blocks() -> Self {
        let row = *Kernel::of_row().last().expect("every processor has a kernel");
        Self { row, block: row, alone: LANES + 1, beside: LANES + 1 }
    }

    /// Times the kernels with generated rows of `width` columns.
    fn timed(compact: &Compact, width: usize) -> Self {
        let values: Vec<_> = (0..BLOCKS * LANES * width).map(spread).collect();
        let rows = Input::Dense(Rows::new(&values, width).expect("a whole number of rows"));
        let trees = 0..compact.roots.len().min(TREES);
        let work = |scored| Work { compact, rows, scored, trees: trees.clone() };
        let (one, group) = (work(0..LANES), work(0..BLOCKS * LANES));
        // Turns of everything that is compared: other work on the processor slows all of it down.
        let mut by_row = Times::new(Kernel::of_row());
        let mut by_group = Times::new(Kernel::of_block());
        let mut by_block = by_group.clone();
        let mut out = vec![0; BLOCKS * LANES * trees.len()];
        let mut places = Places::by_row(trees.clone(), &mut out);
        in_turns(|| {
            by_row.measure(|kernel| kernel.row(&one, &mut places));
            by_group.measure(|kernel| kernel.block(&group, &mut places));
            by_block.measure(|kernel| kernel.block(&one, &mut places));
        });
        let (row, block) = (by_row.fastest(), by_group.fastest());
        let of_row = by_row.times[row] / LANES as u32;
        Self {
            row: by_row.kernels[row],
            block: by_group.kernels[block],
            alone: rows_of(by_block.times[block], of_row),
            beside: rows_of(by_group.times[block] / BLOCKS as u32, of_row),
        }
    }

    /// The number of rows that go in blocks; those behind them go one by one.
    fn in_blocks(self, rows: usize) -> usize {
        let is_never = |block: usize| block > LANES;
        if is_never(self.beside) || (is_never(self.alone) && rows < BLOCKS * LANES) {
            return 0;
        }
        let enough = if rows < LANES { self.alone } else { self.beside };
        let rest = rows % LANES;
        if rest < enough { rows - rest } else { rows }
    }

    /// Finds the leaves of `trees` for all rows.
    pub(crate) fn run(
        self,
        compact: &Compact,
        rows: Input<'_>,
        trees: Range<usize>,
        leaves: &mut impl Leaves,
    ) {
        let in_blocks = self.in_blocks(rows.len());
        let work = |scored| Work { compact, rows, scored, trees: trees.clone() };
        if in_blocks > 0 {
            self.block.block(&work(0..in_blocks), leaves);
        }
        if in_blocks < rows.len() {
            self.row.row(&work(in_blocks..rows.len()), leaves);
        }
    }
}

/// Numbers between -2 and 2 by the golden ratio, which are spread evenly.
fn spread(at: usize) -> f32 {
    (at as f32 * 0.618_034).fract() * 4.0 - 2.0
}

/// The number of rows that take as long one by one as a block does, whose time does not depend on
/// the number of its rows: at least 2. More than [`LANES`] if a block is never of use. That takes
/// more than the errors of measurements, because blocks in vain cost less than none in vain.
fn rows_of(block: Duration, row: Duration) -> usize {
    let rows = block.as_secs_f64() / row.as_secs_f64().max(1e-9);
    if rows > NEVER * LANES as f64 { LANES + 1 } else { (rows.ceil() as usize).clamp(2, LANES) }
}

/// Kernels, and the shortest time of each.
#[derive(Clone)]
struct Times<K> {
    kernels: Vec<K>,
    times: Vec<Duration>,
}

impl<K: Copy> Times<K> {
    fn new(kernels: Vec<K>) -> Self {
        Self { times: vec![Duration::MAX; kernels.len()], kernels }
    }

    /// Runs all kernels once.
    fn measure(&mut self, mut run: impl FnMut(K)) {
        for (kernel, time) in self.kernels.iter().zip(&mut self.times) {
            let start = Instant::now();
            run(*kernel);
            *time = start.elapsed().min(*time);
        }
    }

    /// The number of the fastest kernel.
    fn fastest(&self) -> usize {
        let fastest = (0..self.times.len()).min_by_key(|at| self.times[*at]);
        fastest.expect("every processor has a kernel")
    }
}

/// Calls `turn` some times. The first turn brings the model into the caches.
fn in_turns(mut turn: impl FnMut()) {
    let start = Instant::now();
    for number in 0..TURNS.end {
        if number >= TURNS.start && start.elapsed() > TIME {
            break;
        }
        turn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_used_from_the_rows_on_that_take_as_long() {
        for (block, expected) in [(1, 2), (200, 2), (201, 3), (1600, 16), (1999, 16), (2001, 17)] {
            let rows = rows_of(Duration::from_nanos(block), Duration::from_nanos(100));
            assert_eq!(rows, expected, "a block of {block} ns, and rows of 100 ns");
        }
        assert_eq!(rows_of(Duration::ZERO, Duration::ZERO), 2);
    }

    #[test]
    fn rows_go_in_blocks_where_those_are_faster() {
        let [row, block] = [Kernel(Kind::Portable(Portable), Steps::Lanes); 2];
        for ((alone, beside), rows, expected) in [
            ((11, 7), 10, 0),
            ((11, 7), 11, 11),
            ((11, 7), 16, 16),
            ((11, 7), 22, 16),
            ((11, 7), 23, 23),
            // A single block is slower than its rows: it takes a group of blocks.
            ((17, 7), 63, 0),
            ((17, 7), 64, 64),
            ((17, 7), 70, 64),
            ((17, 17), 1000, 0),
        ] {
            let choice = Choice { row, block, alone, beside };
            assert_eq!(choice.in_blocks(rows), expected, "{rows} rows, {alone} and {beside}");
        }
    }
}
