//! One row of features: from map entries to elements of the tensors.

use outrigger_proto::outrigger::v1::{self, ValueOrigin};

use super::{
    entry::{Entry, Sent},
    fields::{Field, Fields},
    order::Order,
    tally::{BadFeature, Tally},
    unknown::Unknown,
    wire::{MAX_DEPTH, Malformed, Reader},
};
use crate::{
    column::{Buffer, Element, floats},
    metadata::Entity,
    plan::InputPlan,
    request::{Scalar, Value},
};

/// The id of a treatment that has been read already.
pub(super) fn id(treatment: &[u8]) -> &str {
    let (mut rest, mut id) = (Reader::new(treatment), "");
    while let Ok((number, wire_type)) = rest.key() {
        let read = match number {
            1 => rest.text_field(wire_type).map(|text| id = text),
            2 => rest.bytes().map(drop),
            _ => rest.skip(number, wire_type, MAX_DEPTH),
        };
        if read.is_err() {
            break;
        }
    }
    id
}

/// What is known of a slot while its row is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// Its element stands in the tensor.
    Written,
    /// Its value waits for the end of the row: values can be refused only in
    /// the order of metadata.json, and be counted only once.
    Waiting,
}

/// Reads the rows of one entity, one after the other.
#[derive(Debug)]
pub(super) struct Rows<'p, 'r> {
    inputs: &'p [InputPlan],
    fields: &'p Fields,
    order: Order<'r>,
    states: Vec<State>,
    /// Values of the slots that wait.
    values: Vec<Waiting<'r>>,
    odd: Vec<v1::Value>,
    unknown: Vec<(&'r [u8], bool)>,
    /// Whether values may be written before the end of the row; not if their
    /// origins are of interest.
    early: bool,
    /// The row's number in all its tensors.
    row: usize,
}

#[derive(Debug, Clone, Copy)]
enum Waiting<'r> {
    Value(Value<'r>),
    /// An index into `odd`.
    Odd(usize),
}

impl<'p, 'r> Rows<'p, 'r> {
    pub(super) fn new(inputs: &'p [InputPlan], fields: &'p Fields, traced: bool) -> Self {
        let width = fields.fields.len();
        Self {
            inputs,
            fields,
            order: Order::new(width),
            states: vec![State::Absent; width],
            values: vec![Waiting::Odd(0); width],
            odd: Vec::new(),
            unknown: Vec::new(),
            early: !traced,
            row: 0,
        }
    }

    /// Begins the row numbered `row`, for which the buffers have room.
    pub(super) fn begin(&mut self, row: usize) {
        self.row = row;
        self.order.restart();
        self.states.fill(State::Absent);
        self.odd.clear();
        self.unknown.clear();
    }

    /// Reads a treatment, or a part of a user's features; says the treatment's
    /// id.
    ///
    /// # Errors
    /// The bytes are no such message. They have been looked at to their end
    /// otherwise.
    pub(super) fn read(
        &mut self,
        body: &'r [u8],
        buffers: &mut [Buffer],
    ) -> Result<&'r str, Malformed> {
        let treatment = self.fields.entity == Entity::Treatment;
        let (entry_number, entry_key) = if treatment { (2, 0x12) } else { (1, 0x0a) };
        let (mut rest, mut id) = (Reader::new(body), "");
        while !rest.is_empty() {
            if rest.accept(entry_key) {
                self.entry(rest.bytes()?, buffers)?;
                continue;
            }
            match rest.key()? {
                // As prost does: whatever the wire type says.
                (number, _) if number == entry_number => self.entry(rest.bytes()?, buffers)?,
                (1, wire_type) if treatment => id = rest.text_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH - 1)?,
            }
        }
        Ok(id)
    }

    #[inline]
    fn entry(&mut self, body: &'r [u8], buffers: &mut [Buffer]) -> Result<(), Malformed> {
        let entry = Entry::read(body)?;
        match self.order.find(entry.key, &self.fields.keys)? {
            Some(slot) => self.set(slot, entry.value, buffers),
            None => self.unknown.push((entry.key, !matches!(entry.value, Sent::Nothing))),
        }
        Ok(())
    }

    /// Notes a leaf of a user's object.
    pub(super) fn leaf(
        &mut self,
        path: &str,
        value: Value<'r>,
        unknown: &mut Unknown,
        buffers: &mut [Buffer],
    ) {
        match self.fields.keys.find(path.as_bytes()) {
            Some(slot) => self.set(slot, Sent::Value(value), buffers),
            None => unknown.add(path, 1),
        }
    }

    /// Notes a slot's value, in the place of one sent before.
    #[inline]
    fn set(&mut self, slot: usize, sent: Sent<'r>, buffers: &mut [Buffer]) {
        let field = &self.fields.fields[slot];
        let value = match sent {
            Sent::Number(bits) if field.number && self.early && floats::is_finite(bits) => {
                let value = Element::Float32(f32::from_bits(bits));
                buffers[field.input].put(self.row * field.width + field.at, value);
                self.states[slot] = State::Written;
                return;
            }
            Sent::Number(bits) => Value::One(Scalar::Real(f32::from_bits(bits).into())),
            Sent::Value(value) => value,
            Sent::Nothing => {
                self.states[slot] = State::Absent;
                return;
            }
            Sent::Odd(value) => {
                self.values[slot] = Waiting::Odd(self.odd.len());
                self.states[slot] = State::Waiting;
                self.odd.push(*value);
                return;
            }
        };
        self.set_value(slot, value, buffers);
    }

    fn set_value(&mut self, slot: usize, value: Value<'r>, buffers: &mut [Buffer]) {
        let field = &self.fields.fields[slot];
        if self.early
            && field.single
            && let Value::One(scalar) = value
            && let Some(element) = field.column(self.inputs).plain_element(scalar)
        {
            buffers[field.input].put(self.row * field.width + field.at, element);
            self.states[slot] = State::Written;
        } else {
            self.values[slot] = Waiting::Value(value);
            self.states[slot] = State::Waiting;
        }
    }

    /// Counts the keys of the row that the model does not name.
    pub(super) fn count_unknown(&mut self, unknown: &mut Unknown) {
        if !self.unknown.is_empty() {
            unknown.add_row(&mut self.unknown);
        }
    }

    /// Writes what waits and what is absent.
    ///
    /// # Errors
    /// The first feature, in the order of metadata.json, that has a value it
    /// cannot have. `tally` is then as it was.
    pub(super) fn finish(
        &mut self,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> Result<(), BadFeature<'p>> {
        if self.states.iter().all(|state| *state == State::Written) {
            return Ok(());
        }
        let mark = tally.mark(self.inputs, self.fields.entity);
        let written = self.write_rest(buffers, tally);
        if written.is_err() {
            tally.reset(mark);
        }
        written
    }

    fn write_rest(&self, buffers: &mut [Buffer], tally: &mut Tally) -> Result<(), BadFeature<'p>> {
        for (slot, field) in self.fields.fields.iter().enumerate() {
            if self.states[slot] != State::Written {
                let origin = self.write(slot, field, buffers)?;
                tally.note(field.input, origin);
            }
        }
        Ok(())
    }

    fn write(
        &self,
        slot: usize,
        field: &Field,
        buffers: &mut [Buffer],
    ) -> Result<ValueOrigin, BadFeature<'p>> {
        let value = match (self.states[slot], self.values[slot]) {
            (State::Waiting, Waiting::Value(value)) => Some(value),
            (State::Waiting, Waiting::Odd(index)) => Value::of(&self.odd[index]),
            _ => None,
        };
        let column = field.column(self.inputs);
        let mut place = buffers[field.input].cursor(self.row * field.width + field.at);
        let written = column.write(value.as_ref(), &mut place);
        written.map_err(|problem| BadFeature { feature: &column.feature, problem })
    }
}
