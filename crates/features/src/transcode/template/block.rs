//! Numbers sent one after the other: all their bytes but those of the values
//! repeat from treatment to treatment, and one comparison says so.

use std::ops::Range;

use super::super::fields::Fields;
use crate::{
    column::{Buffer, floats},
    plan::InputPlan,
};

/// Compared at once: long enough for vector instructions, short enough to stop
/// early.
const STEP: usize = 32;

/// Entries that are a key and a float32 each.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    /// All bits set where a byte must be the same.
    mask: Vec<u8>,
    /// The slots that have a value here, and where it stands; in the end in the
    /// order of slots.
    values: Vec<(usize, usize)>,
    runs: Vec<Run>,
}

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
            mask: Vec::with_capacity(bytes),
            values: Vec::with_capacity(values),
            runs: Vec::new(),
        }
    }

    /// Adds an entry, which ends with its value; a stranger's is of no use.
    pub(super) fn push(&mut self, entry: &[u8], slot: Option<usize>) {
        self.bytes.extend_from_slice(entry);
        let (start, end) = (self.bytes.len() - 4, self.bytes.len());
        self.mask.resize(start, 0xff);
        self.mask.resize(end, 0);
        self.values.extend(slot.map(|slot| (slot, start)));
    }

    /// Finds out which values are neighbours, once all entries are there.
    pub(super) fn finish(&mut self, inputs: &[InputPlan], fields: &Fields) {
        self.values.sort_unstable();
        for (index, (slot, _)) in self.values.iter().enumerate() {
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
        (self.matches(entries) && self.copy(entries, row, buffers)).then_some(rest)
    }

    /// Whether entries, of as many bytes as these, differ in nothing but their
    /// values.
    #[inline]
    fn matches(&self, entries: &[u8]) -> bool {
        let (steps, tail) = entries.as_chunks::<STEP>();
        let (bytes, bytes_tail) = self.bytes.as_chunks::<STEP>();
        let (masks, masks_tail) = self.mask.as_chunks::<STEP>();
        let mut steps = steps.iter().zip(bytes).zip(masks);
        let mut found = [0; STEP];
        if let Some(((step, bytes), mask)) = steps.next() {
            differ(&mut found, step, bytes, mask);
        }
        // Another order of keys shows at once.
        if found != [0; STEP] {
            return false;
        }
        // What is left is compared without a look at the result in between.
        steps.for_each(|((step, bytes), mask)| differ(&mut found, step, bytes, mask));
        match (entries.last_chunk(), self.bytes.last_chunk(), self.mask.last_chunk()) {
            (Some(step), Some(bytes), Some(mask)) => differ(&mut found, step, bytes, mask),
            _ => {
                let mut tail = tail.iter().zip(bytes_tail).zip(masks_tail);
                return tail.all(|((byte, expected), mask)| (byte ^ expected) & mask == 0);
            }
        }
        found == [0; STEP]
    }

    /// Copies the values; false if one of them is not finite and has to be.
    #[inline]
    fn copy(&self, entries: &[u8], row: usize, buffers: &mut [Buffer]) -> bool {
        self.runs.iter().all(|run| {
            let (mut finite, start) = (true, row * run.width + run.to);
            let to = buffers[run.input].floats_mut(start, run.values.len());
            for (to, (_, from)) in to.iter_mut().zip(&self.values[run.values.clone()]) {
                let Some(bits) = entries.get(*from..*from + 4) else { return false };
                to.copy_from_slice(bits);
                finite &= floats::is_finite(u32::from_le_bytes(*to));
            }
            if !finite && run.any {
                floats::quiet(to.as_flattened_mut());
            }
            finite || run.any
        })
    }
}

/// Adds to `found` the bits in which a step is not as expected.
#[inline(always)]
fn differ(found: &mut [u8; STEP], step: &[u8; STEP], bytes: &[u8; STEP], mask: &[u8; STEP]) {
    for index in 0..STEP {
        found[index] |= (step[index] ^ bytes[index]) & mask[index];
    }
}
