//! One row of features: writes map entries to elements of the tensors.

use super::{
    entry,
    lasts::Lasts,
    lists::{List, Lists},
    merged::Merged,
    order::Order,
    unknown::{Stranger, Unknown},
};
use crate::{
    column::{Buffer, floats},
    entries::{Entries, STRANGERS, STRANGERS_PER_ROW},
    metadata::Entity,
    plan::{BadFeature, Fields, InputPlan, RowResult},
    tally::Tally,
    value::{Scalar, Value},
    wire::{MAX_DEPTH, Malformed, Reader},
};

/// The state of a slot while its row is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// Its element is written to the tensor.
    Written,
    /// Its value is written at the end of the row: values must be refused in the order of
    /// metadata.json and counted only once.
    Waiting,
}

/// Reads the rows of one entity, one after the other.
#[derive(Debug)]
pub(super) struct Rows<'p, 'r> {
    inputs: &'p [InputPlan],
    fields: &'p Fields,
    pub(super) order: Order<'r>,
    states: Vec<State>,
    /// Values of the slots that are written at the end of the row.
    values: Vec<Waiting<'r>>,
    /// Lists that had to be merged.
    lists: Lists,
    unknown: Lasts<Stranger<'r>>,
    /// The unknown features that the request may still have.
    strangers: Entries,
    /// Whether values may be written before the end of the row; false if their origins
    /// are recorded.
    early: bool,
    /// The row's index in all its tensors.
    row: usize,
}

#[derive(Debug, Clone, Copy)]
enum Waiting<'r> {
    Value(Value<'r>),
    List(List),
}

impl<'p, 'r> Rows<'p, 'r> {
    pub(super) fn new(inputs: &'p [InputPlan], fields: &'p Fields, traced: bool) -> Self {
        let width = fields.fields.len();
        Self {
            inputs,
            fields,
            order: Order::new(width),
            states: vec![State::Absent; width],
            values: vec![Waiting::Value(Value::One(Scalar::Other)); width],
            lists: Lists::default(),
            unknown: Lasts::default(),
            strangers: Entries(STRANGERS),
            early: !traced,
            row: 0,
        }
    }

    /// Starts the next request.
    pub(super) fn begin_request(&mut self) {
        self.order.begin_request();
        self.strangers = Entries(STRANGERS);
    }

    /// Starts the row with index `row`, for which the buffers have room.
    pub(super) fn begin(&mut self, row: usize) {
        self.row = row;
        self.order.restart();
        self.states.fill(State::Absent);
        self.lists.clear();
        self.unknown.clear();
        self.strangers.0 += STRANGERS_PER_ROW;
    }

    /// Reads a treatment, or a part of a user's features; returns the treatment's id, in
    /// UTF-8.
    ///
    /// The bytes are not a valid message. On success they have been read to their end.
    pub(super) fn read(
        &mut self,
        body: &'r [u8],
        buffers: &mut [Buffer],
    ) -> Result<&'r [u8], Malformed> {
        let treatment = self.fields.entity == Entity::Treatment;
        let (entry_number, entry_key) = if treatment { (2, 0x12) } else { (1, 0x0a) };
        let (mut rest, mut id) = (Reader::new(body), &[][..]);
        while !rest.is_empty() {
            if rest.accept(entry_key) {
                self.entry(rest.bytes()?, buffers)?;
                continue;
            }
            match rest.key()? {
                // prost ignores the wire type of a map entry, so any is accepted.
                (number, _) if number == entry_number => self.entry(rest.bytes()?, buffers)?,
                (1, wire_type) if treatment => id = rest.text_field(wire_type)?.as_bytes(),
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH - 1)?,
            }
        }
        Ok(id)
    }

    #[inline]
    fn entry(&mut self, body: &'r [u8], buffers: &mut [Buffer]) -> Result<(), Malformed> {
        if let Some((key, bits)) = entry::number(body) {
            match self.order.find(key, &self.fields.keys)? {
                Some(slot) => self.set_number(slot, bits, buffers),
                None => self.add_unknown(Stranger { key, sent: true })?,
            }
        } else if let Some((key, value)) = entry::usual(body) {
            match self.order.find(key, &self.fields.keys)? {
                Some(slot) => self.set(slot, value, buffers),
                None => self.add_unknown(Stranger { key, sent: value.is_some() })?,
            }
        } else {
            let (key, value) = entry::any(body)?;
            match self.order.find(key, &self.fields.keys)? {
                Some(slot) => self.set_merged(slot, value, buffers)?,
                None => self.add_unknown(Stranger { key, sent: value.is_sent() })?,
            }
        }
        Ok(())
    }

    fn add_unknown(&mut self, stranger: Stranger<'r>) -> Result<(), Malformed> {
        self.strangers.take()?;
        self.unknown.push(stranger);
        Ok(())
    }

    /// Stores a slot's number, replacing one sent before.
    #[inline]
    fn set_number(&mut self, slot: usize, bits: u32, buffers: &mut [Buffer]) {
        let field = &self.fields.fields[slot];
        if field.number && self.early && floats::is_finite(bits) {
            buffers[field.input].put_float(self.row * field.width + field.at, bits);
            self.states[slot] = State::Written;
        } else {
            let number = f32::from_bits(bits).into();
            self.set(slot, Some(Value::One(Scalar::Real(number))), buffers);
        }
    }

    fn set(&mut self, slot: usize, value: Option<Value<'r>>, buffers: &mut [Buffer]) {
        let field = &self.fields.fields[slot];
        self.states[slot] = match value {
            None => State::Absent,
            Some(Value::One(scalar)) if self.early && field.single => {
                let (buffer, at) = (&mut buffers[field.input], self.row * field.width + field.at);
                let written = field.column(self.inputs).put(scalar, buffer, at);
                self.values[slot] = Waiting::Value(Value::One(scalar));
                if written { State::Written } else { State::Waiting }
            }
            Some(value) => {
                self.values[slot] = Waiting::Value(value);
                State::Waiting
            }
        };
    }

    /// Stores a slot's value that may have been merged from parts.
    pub(super) fn set_merged(
        &mut self,
        slot: usize,
        value: Merged<'r>,
        buffers: &mut [Buffer],
    ) -> Result<(), Malformed> {
        match value {
            Merged::One(scalar) => self.set(slot, Some(Value::One(scalar)), buffers),
            Merged::List(kind, parts) => {
                self.values[slot] = Waiting::List(self.lists.add(kind, &parts)?);
                self.states[slot] = State::Waiting;
            }
            // No feature takes an object.
            Merged::Absent | Merged::Object(_) => self.set(slot, None, buffers),
        }
        Ok(())
    }

    /// Counts the keys of the row that the model does not name.
    pub(super) fn count_unknown(&mut self, unknown: &mut Unknown) {
        if !self.unknown.is_empty() {
            unknown.add_row(&mut self.unknown);
        }
    }

    /// Writes the waiting values and the replacements of absent ones.
    ///
    /// # Errors
    /// The first `most` features, in the order of metadata.json, with invalid values, or at least
    /// one. `tally` is then restored.
    pub(super) fn finish(
        &mut self,
        most: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> RowResult<'p> {
        if self.states.iter().all(|state| *state == State::Written) {
            return Ok(());
        }
        let mark = tally.mark(self.inputs, self.fields.entity);
        let bad = self.write_rest(most, buffers, tally);
        tally.settle(mark, bad)
    }

    fn write_rest(
        &self,
        most: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> Vec<BadFeature<'p>> {
        let mut bad = Vec::new();
        for (slot, field) in self.fields.fields.iter().enumerate() {
            if self.states[slot] == State::Written {
                continue;
            }
            let (value, buffer) = (self.value(slot), &mut buffers[field.input]);
            match field.write(value, self.row, self.inputs, buffer) {
                Ok(origin) => tally.record(field.input, origin),
                Err(feature) => bad.push(feature),
            }
            if !bad.is_empty() && bad.len() >= most {
                break;
            }
        }
        bad
    }

    /// The waiting value of a slot; `None` is absence.
    fn value(&self, slot: usize) -> Option<Value<'_>> {
        match (self.states[slot], self.values[slot]) {
            (State::Waiting, Waiting::Value(value)) => Some(value),
            (State::Waiting, Waiting::List(list)) => Some(self.lists.get(list)),
            _ => None,
        }
    }
}
