//! Numbers sent one after the other: all their bytes but those of the values
//! repeat from treatment to treatment, and one comparison says so.

use std::ops::Range;

use super::{super::fields::Fields, windows::Windows};
use crate::{
    column::{Buffer, floats},
    plan::InputPlan,
    vectors::widest,
};

/// Compared at once: long enough for vector instructions, short enough to stop
/// early.
const STEP: usize = 32;

/// Entries that are a key and a float32 each.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    /// The slots that have a value here, and where it stands; in the end in the
    /// order of slots, and then those of strangers.
    values: Vec<(usize, usize)>,
    runs: Vec<Run>,
    way: Way,
}

/// How entries are compared with the block's, and values copied.
#[derive(Debug)]
enum Way {
    /// As a whole, then one by one. All bits are set where a byte must be the same.
    Masked(Vec<u8>),
    /// By windows: all values are one run, in its order.
    Windows(Windows),
}

/// The slot of values that the model does not name: after all others.
const STRANGER: usize = usize::MAX;

/// Numbers that are neighbours in a row of a tensor.
#[derive(Debug)]
struct Run {
    input: usize,
    /// In elements: the first of them within its row, and the row.
    to: usize,
    width: usize,
    /// Whether they may be NaN or infinite.
    any: bool,
    /// Which of the block's values they are.
    values: Range<usize>,
}

impl Block {
    /// A block with room for so many bytes and values.
    pub(super) fn new(bytes: usize, values: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            values: Vec::with_capacity(values),
            runs: Vec::new(),
            way: Way::Masked(Vec::new()),
        }
    }

    /// Adds an entry, which ends with its value; a stranger's is of no use.
    pub(super) fn push(&mut self, entry: &[u8], slot: Option<usize>) {
        self.bytes.extend_from_slice(entry);
        self.values.push((slot.unwrap_or(STRANGER), self.bytes.len() - 4));
    }

    /// Finds out which values are neighbours, once all entries are there.
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

    /// Writes the values of the entries that `features` begin with; says what
    /// follows them. `None` if they are other entries, or a value is not finite
    /// that has to be.
    #[inline]
    pub(super) fn write<'r>(
        &self,
        features: &'r [u8],
        row: usize,
        buffers: &mut [Buffer],
    ) -> Option<&'r [u8]> {
        let (entries, rest) = features.split_at_checked(self.bytes.len())?;
        let taken = match &self.way {
            Way::Masked(mask) => take(self, mask, entries, row, buffers),
            Way::Windows(windows) => {
                let run = &self.runs[0];
                let to = run.place(row, buffers);
                windows.take([entries], [&mut *to])? || run.let_through(to)
            }
        };
        taken.then_some(rest)
    }

    /// Whether several treatments can be written at once.
    pub(super) fn takes_several(&self) -> bool {
        matches!(self.way, Way::Windows(_))
    }

    /// Writes the values of several treatments to as many rows; false if one of them has
    /// other entries, or more, or a value is not finite that has to be. The rows may then
    /// have been written to.
    #[inline]
    pub(super) fn write_several<const N: usize>(
        &self,
        features: [&[u8]; N],
        row: usize,
        buffers: &mut [Buffer],
    ) -> bool {
        let Way::Windows(windows) = &self.way else { return false };
        if features.iter().any(|features| features.len() != self.bytes.len()) {
            return false;
        }
        let run = &self.runs[0];
        let mut rows = run.places(row, buffers);
        let finite = windows.take(features, rows.each_mut().map(|row| &mut **row));
        finite.is_some_and(|finite| finite || rows.into_iter().all(|row| run.let_through(row)))
    }

    /// Whether entries, of as many bytes as these, differ in nothing but their
    /// values.
    #[inline(always)]
    fn matches(&self, mask: &[u8], entries: &[u8]) -> bool {
        let (steps, tail) = entries.as_chunks();
        let (bytes, bytes_tail) = self.bytes.as_chunks();
        let (masks, masks_tail) = mask.as_chunks();
        // Without a look at the result in between, this becomes vector instructions.
        let found = steps.iter().zip(bytes).zip(masks).fold([0; STEP], differ);
        let found = match (entries.last_chunk(), self.bytes.last_chunk(), mask.last_chunk()) {
            (Some(step), Some(bytes), Some(mask)) => differ(found, ((step, bytes), mask)),
            _ => {
                let mut tail = tail.iter().zip(bytes_tail).zip(masks_tail);
                return tail.all(|((byte, expected), mask)| (byte ^ expected) & mask == 0);
            }
        };
        found == [0; STEP]
    }

    /// Copies the values of entries, of as many bytes as these; false if one of them
    /// is not finite and has to be.
    #[inline(always)]
    fn copy(&self, entries: &[u8], row: usize, buffers: &mut [Buffer]) -> bool {
        assert_eq!(entries.len(), self.bytes.len());
        self.runs.iter().all(|run| {
            let (values, to) = (&self.values[run.values.clone()], run.place(row, buffers));
            // SAFETY: `push` notes nothing but where entries of this length have values.
            unsafe { copy_floats(entries, values, to) || run.let_through(to) }
        })
    }
}

impl Run {
    /// Where the numbers of a row go.
    #[inline(always)]
    fn place<'b>(&self, row: usize, buffers: &'b mut [Buffer]) -> &'b mut [[u8; 4]] {
        buffers[self.input].floats_mut(row * self.width + self.to, self.values.len())
    }

    /// Where the numbers of several rows go.
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

    /// Whether numbers, not all of which are finite, may be so.
    fn let_through(&self, numbers: &mut [[u8; 4]]) -> bool {
        if self.any {
            floats::quiet(numbers.as_flattened_mut());
        }
        self.any
    }
}

/// Copies float32 from where they stand in `entries`; whether all are finite.
///
/// # Safety
/// All of them end within `entries`. To check that for each takes as long as copying it.
#[inline(always)]
unsafe fn copy_floats(entries: &[u8], values: &[(usize, usize)], to: &mut [[u8; 4]]) -> bool {
    let mut found = 0;
    for (to, (_, from)) in to.iter_mut().zip(values) {
        // SAFETY: the caller has seen to it.
        to.copy_from_slice(unsafe { entries.get_unchecked(*from..*from + 4) });
        found |= floats::overflow(u32::from_le_bytes(*to));
    }
    floats::are_finite(found)
}

widest! {
    /// Writes the values of entries, of as many bytes as the block's; false if they
    /// are other entries, or a value is not finite that has to be.
    fn take(block: &Block, mask: &[u8], entries: &[u8], row: usize, buffers: &mut [Buffer])
        -> bool = take_in;
}

#[inline(always)]
fn take_in(block: &Block, mask: &[u8], entries: &[u8], row: usize, buffers: &mut [Buffer]) -> bool {
    block.matches(mask, entries) && block.copy(entries, row, buffers)
}

/// `found`, with the bits in which a step is not as expected.
#[inline(always)]
fn differ(
    mut found: [u8; STEP],
    ((step, bytes), mask): ((&[u8; STEP], &[u8; STEP]), &[u8; STEP]),
) -> [u8; STEP] {
    for index in 0..STEP {
        found[index] |= (step[index] ^ bytes[index]) & mask[index];
    }
    found
}
