//! One row of features: writes values to elements of the tensors as they are read.

use std::mem;

use outrigger_json::{
    Cursor, Odd, Read, deeper,
    number::{self, Number},
};

use super::{
    template::{Shape, Target},
    vector::Vector,
};
use crate::{
    column::{Buffer, floats},
    faults,
    plan::{BadFeature, Fields, InputPlan, RowResult},
    tally::Tally,
    value::{Scalar, Value},
};
use outrigger_proto::outrigger::v1::ValueOrigin;

/// The state of a slot while its row is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Written,
    OutOfVocabulary,
    Refused,
}

/// Reads the rows of one entity, one after the other.
#[derive(Debug)]
pub(super) struct Row<'p> {
    inputs: &'p [InputPlan],
    fields: &'p Fields,
    /// True if the origin of every value is recorded.
    traced: bool,
    states: Vec<State>,
    /// The number of slots that are written.
    written: usize,
    /// The refused features that metadata.json names first, as many as are reported, and their
    /// slots, in order.
    refused: Vec<(usize, BadFeature<'p>)>,
    /// The row's index in all its tensors.
    index: usize,
    /// The names of the objects around the value, joined by dots. A path longer than all names of
    /// features grows no further.
    path: Vec<u8>,
    vector: Vector,
    /// The number of values that the model does not name.
    pub(super) unknown: usize,
}

impl<'p> Row<'p> {
    pub(super) fn new(inputs: &'p [InputPlan], fields: &'p Fields, traced: bool) -> Self {
        Self {
            inputs,
            fields,
            traced,
            states: vec![State::Absent; fields.len()],
            written: 0,
            refused: Vec::new(),
            index: 0,
            path: Vec::new(),
            vector: Vector::default(),
            unknown: 0,
        }
    }

    /// Starts the row with this index, for which the buffers have room.
    pub(super) fn begin(&mut self, index: usize) {
        self.states.fill(State::Absent);
        (self.written, self.index, self.unknown) = (0, index, 0);
        self.refused.clear();
        self.path.clear();
    }

    /// Reads an object of features, whose keys are joined to the path, within `depth` others.
    /// `shape` learns where its values stand.
    pub(super) fn features<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        buffers: &mut [Buffer],
        mut shape: Option<&mut Shape<'a>>,
        depth: u32,
    ) -> Read<()> {
        let depth = deeper(depth)?;
        cursor.object(|key, cursor| {
            let (key, before) = (key.read()?, cursor.rest);
            if cursor.peek() == Some(b'{') {
                let parent = self.descend(&key);
                if self.fields.takes_no_object(&self.path) {
                    // Ids with weights, and errors, are left to the general reader.
                    return Err(Odd);
                }
                self.features(cursor, buffers, shape.as_deref_mut(), depth)?;
                self.path.truncate(parent);
                return Ok(());
            }
            let slot = self.slot(&key);
            self.value(slot, cursor, buffers, depth)?;
            if let Some(shape) = &mut shape {
                shape.learn(before, Target::Feature(slot), cursor.rest);
            }
            Ok(())
        })
    }

    /// Appends a key to the path; returns the length that the path had.
    fn descend(&mut self, key: &[u8]) -> usize {
        let parent = self.path.len();
        if parent <= self.fields.longest_name() {
            if parent > 0 {
                self.path.push(b'.');
            }
            self.path.extend_from_slice(key);
        }
        parent
    }

    /// The slot of the feature under this key; `None` if the model does not name it.
    fn slot(&mut self, key: &[u8]) -> Option<usize> {
        if self.path.is_empty() {
            return self.fields.keys.find(key);
        }
        let parent = self.descend(key);
        let slot = self.fields.keys.find(&self.path);
        self.path.truncate(parent);
        slot
    }

    /// Reads a value that is no object, and writes it to its slot. Null is absence; a value without
    /// a slot is only counted.
    #[inline]
    pub(super) fn value(
        &mut self,
        slot: Option<usize>,
        cursor: &mut Cursor<'_>,
        buffers: &mut [Buffer],
        depth: u32,
    ) -> Read<()> {
        if let (Some(slot), Some(b'-' | b'0'..=b'9')) = (slot, cursor.peek()) {
            let number = number::read(&mut cursor.rest).ok_or(Odd)?;
            return self.number(slot, number, buffers);
        }
        self.other(slot, cursor, buffers, depth)
    }

    fn other(
        &mut self,
        slot: Option<usize>,
        cursor: &mut Cursor<'_>,
        buffers: &mut [Buffer],
        depth: u32,
    ) -> Read<()> {
        if cursor.peek() == Some(b'n') {
            return cursor.word("null");
        }
        let Some(slot) = slot else {
            self.unknown += 1;
            return cursor.value(depth);
        };
        match cursor.peek() {
            Some(b'"') => {
                let text = cursor.text()?.read()?;
                self.set(slot, Value::One(Scalar::Text(&text)), buffers)
            }
            Some(b'[') => self.list(slot, cursor, buffers),
            found => {
                let flag = found == Some(b't');
                cursor.word(if flag { "true" } else { "false" })?;
                self.set(slot, Value::One(Scalar::Flag(flag)), buffers)
            }
        }
    }

    #[inline]
    fn number(&mut self, slot: usize, number: Number, buffers: &mut [Buffer]) -> Read<()> {
        let (field, bits) = (&self.fields.fields[slot], number.to_f32().to_bits());
        if field.number && floats::is_finite(bits) {
            self.give(slot, State::Written)?;
            buffers[field.input].put_float(self.index * field.width + field.at, bits);
            return Ok(());
        }
        let scalar = match number {
            Number::Integer(value) => Scalar::Integer(value),
            Number::Real(value) => Scalar::Real(value),
        };
        self.set(slot, Value::One(scalar), buffers)
    }

    /// A feature is given once.
    #[inline]
    fn give(&mut self, slot: usize, state: State) -> Read<()> {
        if mem::replace(&mut self.states[slot], state) != State::Absent {
            return Err(Odd);
        }
        self.written += usize::from(state == State::Written);
        Ok(())
    }

    fn set(&mut self, slot: usize, value: Value<'_>, buffers: &mut [Buffer]) -> Read<()> {
        let field = &self.fields.fields[slot];
        match field.write(Some(value), self.index, self.inputs, &mut buffers[field.input]) {
            Ok(ValueOrigin::OutOfVocabulary) => self.give(slot, State::OutOfVocabulary),
            Ok(_) => self.give(slot, State::Written),
            Err(bad) => self.refuse(slot, bad),
        }
    }

    fn refuse(&mut self, slot: usize, bad: BadFeature<'p>) -> Read<()> {
        let position = self.refused.partition_point(|(other, _)| *other < slot);
        self.refused.insert(position, (slot, bad));
        self.refused.truncate(faults::MOST);
        self.give(slot, State::Refused)
    }

    fn list(&mut self, slot: usize, cursor: &mut Cursor<'_>, buffers: &mut [Buffer]) -> Read<()> {
        let field = &self.fields.fields[slot];
        let (column, start) = (field.column(self.inputs), *cursor);
        if column.takes_floats() {
            let at = self.index * field.width + field.at;
            let to = buffers[field.input].floats_mut(at, column.length);
            if number::float32s(cursor, to).is_ok() {
                return self.give(slot, State::Written);
            }
            *cursor = start;
        }
        let mut vector = mem::take(&mut self.vector);
        vector.read(cursor, column.most)?;
        let value = vector.value(self.inputs[field.input].dtype)?;
        match column.check_length(vector.count) {
            Ok(()) => self.set(slot, value, buffers)?,
            Err(problem) => {
                self.refuse(slot, BadFeature { feature: &column.feature, problem })?;
            }
        }
        self.vector = vector;
        Ok(())
    }

    /// Writes the replacements of absent values.
    ///
    /// # Errors
    /// The first `most` features, in the order of metadata.json, that are refused, or at least one.
    /// `tally` is then restored.
    pub(super) fn finish(
        &mut self,
        most: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> RowResult<'p> {
        if self.written == self.states.len() && !self.traced {
            return Ok(());
        }
        let mark = tally.mark(self.inputs, self.fields.entity);
        let bad = self.write_rest(most, buffers, tally);
        tally.settle(mark, bad)
    }

    fn write_rest(
        &mut self,
        most: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
    ) -> Vec<BadFeature<'p>> {
        let mut bad = Vec::new();
        let mut refused = self.refused.drain(..);
        for (slot, field) in self.fields.fields.iter().enumerate() {
            let origin = match self.states[slot] {
                State::Written => Ok(ValueOrigin::Request),
                State::OutOfVocabulary => Ok(ValueOrigin::OutOfVocabulary),
                State::Absent => {
                    field.write(None, self.index, self.inputs, &mut buffers[field.input])
                }
                State::Refused => match refused.next() {
                    Some((_, bad)) => Err(bad),
                    None => continue,
                },
            };
            match origin {
                Ok(origin) => tally.record(field.input, origin),
                Err(feature) => bad.push(feature),
            }
            if !bad.is_empty() && bad.len() >= most {
                break;
            }
        }
        bad
    }
}
