//! The shape of a treatment: its features without their values.

use outrigger_proto::outrigger::v1::ValueOrigin;

use super::{super::entry, block::Block};
use crate::{
    column::Buffer,
    plan::{Fields, InputPlan},
    tally::Tally,
    value::Value,
    wire::Reader,
};

/// The maximum number of unknown keys in a shape.
const STRANGERS: usize = 32;
/// The maximum number of bytes reserved for numbers at once.
const ROOM: usize = 4096;

/// The keys of a treatment, in order.
#[derive(Debug)]
pub(super) struct Shape<'p> {
    inputs: &'p [InputPlan],
    fields: &'p Fields,
    pieces: Vec<Piece>,
    /// Slots without a key.
    absent: Vec<usize>,
    /// The number of values that the model does not name.
    pub(super) strangers: u64,
}

#[derive(Debug)]
enum Piece {
    /// Numbers that are copied unchanged.
    Numbers(Block),
    Other(Other),
}

/// An entry with a value of another type.
#[derive(Debug)]
struct Other {
    /// The encoded key that the entry's body begins with.
    key: Vec<u8>,
    /// `None` if the model does not name it.
    slot: Option<usize>,
}

impl<'p> Shape<'p> {
    /// The shape of features that are each sent once and encoded as common libraries do.
    pub(super) fn of(features: &[u8], inputs: &'p [InputPlan], fields: &'p Fields) -> Option<Self> {
        let (pieces, absent, strangers) = (Vec::new(), Vec::new(), 0);
        let mut shape = Self { inputs, fields, pieces, absent, strangers };
        let (mut rest, mut unknown) = (Reader::new(features), Vec::new());
        let mut sent = vec![false; fields.fields.len()];
        while !rest.is_empty() {
            let start = rest.rest();
            if !rest.accept(0x12) {
                return None;
            }
            let body = rest.bytes().ok()?;
            let (key, _) = entry::usual(body)?;
            let slot = fields.keys.find(key);
            match slot {
                Some(slot) if std::mem::replace(&mut sent[slot], true) => return None,
                None if unknown.len() == STRANGERS || unknown.contains(&key) => return None,
                Some(_) => {}
                None => unknown.push(key),
            }
            let entry = &start[..start.len() - rest.rest().len()];
            shape.add(entry, body, slot, start.len())?;
        }
        shape.absent.extend((0..sent.len()).filter(|slot| !sent[*slot]));
        Some(shape.finish())
    }

    /// Adds the next entry; `left` is the number of bytes from this entry to the end.
    fn add(&mut self, entry: &[u8], body: &[u8], slot: Option<usize>, left: usize) -> Option<()> {
        let plain = slot.is_none_or(|slot| self.fields.fields[slot].number);
        if !plain || entry::number(body).is_none() {
            let (_, value) = entry::split(body)?;
            let key = body[..body.len() - value.len()].to_vec();
            self.pieces.push(Piece::Other(Other { key, slot }));
            return Some(());
        }
        self.strangers += u64::from(slot.is_none());
        if !matches!(self.pieces.last(), Some(Piece::Numbers(_))) {
            self.pieces.push(Piece::Numbers(Block::new(
                left.min(ROOM),
                self.fields.fields.len() + STRANGERS,
            )));
        }
        if let Some(Piece::Numbers(block)) = self.pieces.last_mut() {
            block.push(entry, slot);
        }
        Some(())
    }

    fn finish(mut self) -> Self {
        for piece in &mut self.pieces {
            if let Piece::Numbers(block) = piece {
                block.finish(self.inputs, self.fields);
            }
        }
        self
    }

    /// Writes features of this shape to a row; returns the number of values that the
    /// model does not name. `None` if they have another shape or an invalid value; part
    /// of the row may then have been written and recorded.
    #[inline]
    pub(super) fn write(
        &self,
        features: &[u8],
        row: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> Option<u64> {
        let (mut rest, mut strangers) = (features, self.strangers);
        for piece in &self.pieces {
            match piece {
                Piece::Numbers(block) => rest = block.write(rest, row, buffers)?,
                Piece::Other(other) => {
                    let value;
                    (value, rest) = other.split(rest)?;
                    if let (Some(slot), Some(text)) = (other.slot, entry::text(value))
                        && self.set_word(slot, text, row, buffers, tally)
                    {
                        continue;
                    }
                    let value = entry::value(value)?;
                    match other.slot {
                        Some(slot) => self.set(slot, value, row, buffers, tally)?,
                        None => strangers += u64::from(value.is_some()),
                    }
                }
            }
        }
        if !rest.is_empty() {
            return None;
        }
        for slot in &self.absent {
            self.set(*slot, None, row, buffers, tally)?;
        }
        Some(strangers)
    }

    /// The block of numbers, if the shape consists of nothing else.
    pub(super) fn block(&self) -> Option<&Block> {
        match self.pieces.as_slice() {
            [Piece::Numbers(block)] if self.absent.is_empty() => Some(block),
            _ => None,
        }
    }

    /// Writes a text that needs no more than a look-up or a hash; false for any other.
    #[inline(always)]
    fn set_word(
        &self,
        slot: usize,
        text: &[u8],
        row: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> bool {
        let field = &self.fields.fields[slot];
        let (buffer, at) = (&mut buffers[field.input], row * field.width + field.at);
        let written = field.single && field.column(self.inputs).put_word(text, buffer, at);
        if written {
            tally.record(field.input, ValueOrigin::Request);
        }
        written
    }

    fn set(
        &self,
        slot: usize,
        value: Option<Value<'_>>,
        row: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> Option<()> {
        let field = &self.fields.fields[slot];
        let origin = field.write(value, row, self.inputs, &mut buffers[field.input]).ok()?;
        tally.record(field.input, origin);
        Some(())
    }
}

impl Other {
    /// Splits `features`, which begin with this key's entry: the entry's bytes after the key, and
    /// the bytes after the entry.
    #[inline]
    fn split<'r>(&self, features: &'r [u8]) -> Option<(&'r [u8], &'r [u8])> {
        let mut rest = Reader::new(features);
        if !rest.accept(0x12) {
            return None;
        }
        let body = rest.bytes().ok()?;
        Some((body.strip_prefix(self.key.as_slice())?, rest.rest()))
    }
}
