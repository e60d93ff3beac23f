//! Consecutive numbers: all bytes except the values repeat from treatment to treatment,
//! and are checked by one comparison.

use std::ops::Range;

use super::windows::Windows;
use crate::{
    column::{Buffer, floats},
    plan::{Fields, InputPlan},
    vectors::widest,
};

/// The number of bytes compared at once: enough for vector instructions.
const STEP: usize = 32;
/// The same number in words: the compiler vectorizes words more readily than bytes.
const LANES: usize = STEP / size_of::<u64>();

/// Consecutive entries, each a key and a float32.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    /// The slots with a value here, and the position of the value; after `finish` in the
    /// order of slots, followed by those of unknown keys.
    values: Vec<(usize, usize)>,
    runs: Vec<Run>,
    way: Way,
}

/// The method by which entries are compared with the block's, and their values copied.
#[derive(Debug)]
enum Way {
    /// Compares the entries as a whole, then copies the values one by one. All bits of
    /// the mask are set where a byte must be equal.
    Masked(Vec<u8>),
    /// Compares and copies window by window: all values are one run, in its order.
    Windows(Windows),
}

/// The slot of values that the model does not name: sorts after all others.
const STRANGER: usize = usize::MAX;

/// Numbers that are neighbours in the row of a tensor.
#[derive(Debug)]
struct Run {
    input: usize,
    /// The position of the first number in its row, and the length of the row, in
    /// elements.
    to: usize,
    width: usize,
    /// Whether the numbers may be NaN or infinite.
    any: bool,
    /// The range of the run in the block's values.
    values: Range<usize>,
}

impl Block {
    /// Creates a block with room for this many bytes and values.
    pub(super) fn new(bytes: usize, values: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            values: Vec::with_capacity(values),
            runs: Vec::new(),
            way: Way::Masked(Vec::new()),
        }
    }

    /// Adds an entry, which ends with its value; the value is discarded if `slot` is
    /// `None`.
    pub(super) fn push(&mut self, entry: &[u8], slot: Option<usize>) {
        self.bytes.extend_from_slice(entry);
        self.values.push((slot.unwrap_or(STRANGER), self.bytes.len() - 4));
    }

    /// Groups the values into runs of neighbours, once all entries are added.
    pub(super) fn finish(&mut self, inputs: &[InputPlan], fields: &Fields) {
        self.values.sort_unstable();
        let named = self.values.iter().take_while(|(slot, _)| *slot != STRANGER);
        for (index, (slot, _)) in named.enumerate() {
            let field = &fields.fields[*slot];
            let (input, to, width) = (field.input, field.at, field.width);
            let any = field.column(inputs).takes_non_finite();
            let follows = |run: &&mut Run| {
                run.input == input && run.to + run.values.len() == to && run.any == any
            };
            match self.runs.last_mut().filter(follows) {
                Some(run) => run.values.end += 1,
                None => self.runs.push(Run { input, to, width, any, values: index..index + 1 }),
            }
        }
        self.way = self.windows().map_or_else(|| Way::Masked(self.mask()), Way::Windows);
    }

    fn windows(&self) -> Option<Windows> {
        let [run] = self.runs.as_slice() else { return None };
        let (named, strangers) = self.values.split_at(run.values.end);
        let [named, strangers] = [named, strangers].map(|values| values.iter().map(|(_, at)| *at));
        Windows::new(&self.bytes, named, strangers)
    }

    fn mask(&self) -> Vec<u8> {
        let mut mask = vec![0xff; self.bytes.len()];
        for (_, position) in &self.values {
            mask[*position..position + 4].fill(0);
        }
        mask
    }

    /// Writes the values of the entries that `features` begin with; returns the bytes
    /// after them. `None` if the entries differ from the block's, or a value is not
    /// finite but must be.
    #[inline]
    pub(super) fn write<'r>(
        &self,
        features: &'r [u8],
        row: usize,
        buffers: &mut [Buffer],
    ) -> Option<&'r [u8]> {
        let (entries, rest) = features.split_at_checked(self.bytes.len())?;
        let taken = match &self.way {
            Way::Masked(mask) => take(self, mask, [entries], row, buffers),
            Way::Windows(windows) => self.take_windows(windows, [entries], row, buffers),
        };
        taken.then_some(rest)
    }

    /// Writes the values of several treatments to as many rows; false if one of them has
    /// other entries, or more, or a value that is not finite but must be. The rows may
    /// then have been overwritten.
    #[inline]
    pub(super) fn write_several<const N: usize>(
        &self,
        features: [&[u8]; N],
        row: usize,
        buffers: &mut [Buffer],
    ) -> bool {
        let fit = features.iter().all(|features| features.len() == self.bytes.len());
        fit && match &self.way {
            Way::Masked(mask) => take(self, mask, features, row, buffers),
            Way::Windows(windows) => self.take_windows(windows, features, row, buffers),
        }
    }

    /// As [`take`], window by window.
    #[inline]
    fn take_windows<const N: usize>(
        &self,
        windows: &Windows,
        entries: [&[u8]; N],
        row: usize,
        buffers: &mut [Buffer],
    ) -> bool {
        let run = &self.runs[0];
        let mut rows = run.places(row, buffers);
        let finite = windows.take(entries, rows.each_mut().map(|row| &mut **row));
        finite.is_some_and(|finite| finite || run.accepts_non_finite(rows))
    }

    /// Whether entries, each of the block's length, differ from the block's only in their
    /// values. The expected bytes are loaded once for all of them.
    #[inline(always)]
    fn matches<const N: usize>(&self, mask: &[u8], entries: [&[u8]; N]) -> bool {
        let length = self.bytes.len();
        assert!(mask.len() == length && entries.iter().all(|entries| entries.len() == length));
        if length < STEP {
            let same = |entries: &[u8], at| (entries[at] ^ self.bytes[at]) & mask[at] == 0;
            return entries.iter().all(|entries| (0..length).all(|at| same(entries, at)));
        }
        // The results are not inspected in between, so that the compiler vectorizes this
        // loop.
        let mut found = [0; LANES];
        for at in (0..length).step_by(STEP) {
            // The last step overlaps the one before.
            let at = at.min(length - STEP);
            let (expected, mask) = (step(&self.bytes, at), step(mask, at));
            let mut differs = [0; LANES];
            for entries in &entries {
                let entries = step(entries, at);
                for lane in 0..LANES {
                    differs[lane] |= entries[lane] ^ expected[lane];
                }
            }
            for lane in 0..LANES {
                found[lane] |= differs[lane] & mask[lane];
            }
        }
        found == [0; LANES]
    }

    /// Copies the values of entries, each of the block's length; false if one of them is
    /// not finite but must be.
    #[inline(always)]
    fn copy<const N: usize>(
        &self,
        entries: [&[u8]; N],
        row: usize,
        buffers: &mut [Buffer],
    ) -> bool {
        assert!(entries.iter().all(|entries| entries.len() == self.bytes.len()));
        for run in &self.runs {
            let (values, mut rows) = (&self.values[run.values.clone()], run.places(row, buffers));
            let to = rows.each_mut().map(|row| &mut **row);
            // SAFETY: `push` records only positions of values within entries of this
            // length.
            let finite = unsafe { copy_floats(entries, values, to) };
            if !finite && !run.accepts_non_finite(rows) {
                return false;
            }
        }
        true
    }
}

impl Run {
    /// The destinations of the numbers in the rows from `row` on.
    #[inline(always)]
    fn places<'b, const N: usize>(
        &self,
        row: usize,
        buffers: &'b mut [Buffer],
    ) -> [&'b mut [[u8; 4]]; N] {
        let (start, count) = (row * self.width + self.to, self.values.len());
        let all = buffers[self.input].floats_mut(start, (N - 1) * self.width + count);
        let mut rows = all.chunks_mut(self.width);
        std::array::from_fn(|_| &mut rows.next().expect("N rows")[..count])
    }

    /// Whether this run of features accepts NaN and infinity; if so, makes every NaN in
    /// the rows quiet.
    fn accepts_non_finite<const N: usize>(&self, rows: [&mut [[u8; 4]]; N]) -> bool {
        if self.any {
            rows.into_iter().for_each(|row| floats::quiet(row.as_flattened_mut()));
        }
        self.any
    }
}

/// Copies the float32 at these positions of each of `entries` to rows; returns whether all are
/// finite.
///
/// # Safety
/// All values end within `entries`. A check of each would take as long as its copy.
#[inline(always)]
unsafe fn copy_floats<const N: usize>(
    entries: [&[u8]; N],
    values: &[(usize, usize)],
    rows: [&mut [[u8; 4]]; N],
) -> bool {
    assert!(rows.iter().all(|row| row.len() == values.len()));
    let mut found = 0;
    for (index, &(_, from)) in values.iter().enumerate() {
        for at in 0..N {
            let to = &mut rows[at][index];
            // SAFETY: the caller guarantees that the range is within the entry.
            to.copy_from_slice(unsafe { entries[at].get_unchecked(from..from + 4) });
            found |= floats::overflow(u32::from_le_bytes(*to));
        }
    }
    floats::are_finite(found)
}

widest! {
    /// Writes the values of entries, each of the block's length, to as many rows; false
    /// if some are other entries, or a value is not finite but must be.
    fn take<const N: usize>(
        block: &Block,
        mask: &[u8],
        entries: [&[u8]; N],
        row: usize,
        buffers: &mut [Buffer]
    ) -> bool = take_in;
}

#[inline(always)]
fn take_in<const N: usize>(
    block: &Block,
    mask: &[u8],
    entries: [&[u8]; N],
    row: usize,
    buffers: &mut [Buffer],
) -> bool {
    block.matches(mask, entries) && block.copy(entries, row, buffers)
}

/// The step of `bytes` that begins at `at`.
#[inline(always)]
fn step(bytes: &[u8], at: usize) -> [u64; LANES] {
    let bytes: &[u8; STEP] = bytes[at..].first_chunk().expect("a step");
    let (lanes, _) = bytes.as_chunks();
    let mut step = [0; LANES];
    for lane in 0..LANES {
        step[lane] = u64::from_ne_bytes(lanes[lane]);
    }
    step
}
