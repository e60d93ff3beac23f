//! Whole treatments at once: where one after the other has the same keys in the
//! same order and values of the same size, all bytes but those of the values
//! and of the id repeat, and one comparison says so.

use outrigger_proto::outrigger::v1::ValueOrigin;

use super::{
    fields::{Field, Fields},
    tally::Tally,
    unknown::Unknown,
    wire::{Reader, is_text},
};
use crate::{
    column::{Buffer, floats},
    plan::InputPlan,
};

/// Compared at once: long enough for vector instructions, short enough to stop
/// early.
const BLOCK: usize = 32;
/// As many misses are allowed before any hit.
const FEW: u32 = 4;

/// A template has room for so many keys that the model does not name.
const STRANGERS: usize = 32;

/// The template of a call's treatments, as long as there is use for one.
#[derive(Debug)]
pub(super) struct Template<'p> {
    inputs: &'p [InputPlan],
    fields: &'p Fields,
    shape: Option<Shape>,
    trusted: bool,
    hits: u32,
    misses: u32,
}

/// A treatment without its id, its values blanked out.
#[derive(Debug)]
struct Shape {
    bytes: Vec<u8>,
    /// All bits set where a byte must be the same.
    mask: Vec<u8>,
    runs: Vec<Run>,
    /// Slots that no key is there for.
    absent: Vec<usize>,
    /// Keys that the model does not name.
    unknown: u64,
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
    /// Where they stand in a treatment.
    from: Vec<usize>,
}

impl<'p> Template<'p> {
    /// Only for calls that are not traced: nothing is said about origins.
    pub(super) fn new(inputs: &'p [InputPlan], fields: &'p Fields, traced: bool) -> Self {
        Self { inputs, fields, shape: None, trusted: !traced, hits: 0, misses: 0 }
    }

    /// Writes a treatment's features, if it is like the one before; says its id,
    /// in UTF-8.
    /// `None` says nothing about the treatment, and may have written anything
    /// to its row.
    #[inline]
    pub(super) fn apply<'r>(
        &mut self,
        body: &'r [u8],
        row: usize,
        buffers: &mut [Buffer],
        tally: &mut Tally,
        unknown: &mut Unknown,
    ) -> Option<&'r [u8]> {
        let shape = self.shape.as_ref()?;
        let (id, features) = split(body)?;
        if !shape.matches(features) || !shape.copy(features, row, buffers) || !is_text(id) {
            return None;
        }
        unknown.count += shape.unknown;
        for slot in &shape.absent {
            self.write_absent(*slot, row, buffers, tally);
        }
        self.hits += 1;
        Some(id)
    }

    fn write_absent(&self, slot: usize, row: usize, buffers: &mut [Buffer], tally: &mut Tally) {
        let field = &self.fields.fields[slot];
        let mut place = buffers[field.input].cursor(row * field.width + field.at);
        let origin = field.column(self.inputs).write(None, &mut place);
        // A row without this feature has been packed before.
        tally.note(field.input, origin.unwrap_or(ValueOrigin::Unspecified));
    }

    /// Takes a treatment that has just been packed in another way, and without
    /// complaint, as the next one's template.
    pub(super) fn learn(&mut self, body: &[u8]) {
        if !self.trusted {
            return;
        }
        self.misses += 1;
        if self.misses > FEW + self.hits / 4 {
            (self.trusted, self.shape) = (false, None);
            return;
        }
        self.shape =
            split(body).and_then(|(_, features)| Shape::of(features, self.fields, self.inputs));
    }
}

/// The id of a treatment that begins with one, and its features.
#[inline]
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = Reader::new(body);
    let id = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    Some((id, rest.rest()))
}

impl Shape {
    /// The shape of features that are all numbers, each sent once.
    fn of(features: &[u8], fields: &Fields, inputs: &[InputPlan]) -> Option<Self> {
        let mut shape = Self {
            bytes: features.to_vec(),
            mask: vec![0xff; features.len()],
            runs: Vec::new(),
            absent: Vec::new(),
            unknown: 0,
        };
        let (mut rest, mut strangers) = (Reader::new(features), Vec::new());
        let mut places = vec![None; fields.fields.len()];
        while !rest.is_empty() {
            if !rest.accept(0x12) {
                return None;
            }
            let entry = rest.bytes().ok()?;
            let key = key_of_number(entry)?;
            let from = features.len() - rest.rest().len() - 4;
            shape.mask[from..from + 4].fill(0);
            match fields.keys.find(key) {
                Some(slot) if places[slot].replace(from).is_some() => return None,
                Some(_) => {}
                None if strangers.len() == STRANGERS || strangers.contains(&key) => return None,
                None => strangers.push(key),
            }
        }
        shape.unknown = strangers.len() as u64;
        for (slot, place) in places.into_iter().enumerate() {
            match place {
                Some(from) => shape.add(&fields.fields[slot], from, inputs)?,
                None => shape.absent.push(slot),
            }
        }
        Some(shape)
    }

    /// Adds the next number, in the order of slots.
    fn add(&mut self, field: &Field, from: usize, inputs: &[InputPlan]) -> Option<()> {
        let (input, to, width) = (field.input, field.at, field.width);
        let any = field.column(inputs).takes_non_finite();
        let follows =
            |run: &&mut Run| run.input == input && run.to + run.from.len() == to && run.any == any;
        match self.runs.last_mut().filter(follows) {
            Some(run) => run.from.push(from),
            None => self.runs.push(Run { input, to, width, any, from: vec![from] }),
        }
        field.number.then_some(())
    }

    /// Whether features differ in nothing but their values.
    #[inline]
    fn matches(&self, features: &[u8]) -> bool {
        if features.len() != self.bytes.len() {
            return false;
        }
        let (blocks, tail) = features.as_chunks::<BLOCK>();
        let (bytes, bytes_tail) = self.bytes.as_chunks::<BLOCK>();
        let (masks, masks_tail) = self.mask.as_chunks::<BLOCK>();
        let mut blocks = blocks.iter().zip(bytes).zip(masks);
        let mut found = [0; BLOCK];
        if let Some(((block, bytes), mask)) = blocks.next() {
            differ(&mut found, block, bytes, mask);
        }
        // Another order of keys shows at once.
        if found != [0; BLOCK] {
            return false;
        }
        // What is left is compared without a look at the result in between.
        blocks.for_each(|((block, bytes), mask)| differ(&mut found, block, bytes, mask));
        match (features.last_chunk(), self.bytes.last_chunk(), self.mask.last_chunk()) {
            (Some(block), Some(bytes), Some(mask)) => differ(&mut found, block, bytes, mask),
            _ => {
                let mut tail = tail.iter().zip(bytes_tail).zip(masks_tail);
                return tail.all(|((byte, expected), mask)| (byte ^ expected) & mask == 0);
            }
        }
        found == [0; BLOCK]
    }

    /// Copies the values; false if one of them is not finite and has to be.
    #[inline]
    fn copy(&self, features: &[u8], row: usize, buffers: &mut [Buffer]) -> bool {
        self.runs.iter().all(|run| {
            let (mut finite, start) = (true, row * run.width + run.to);
            let to = buffers[run.input].floats_mut(start, run.from.len());
            for (to, from) in to.iter_mut().zip(&run.from) {
                let Some(bits) = features.get(*from..*from + 4) else { return false };
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

/// Adds to `found` the bits in which a block is not as expected.
#[inline(always)]
fn differ(found: &mut [u8; BLOCK], block: &[u8; BLOCK], bytes: &[u8; BLOCK], mask: &[u8; BLOCK]) {
    for index in 0..BLOCK {
        found[index] |= (block[index] ^ bytes[index]) & mask[index];
    }
}

/// The key of an entry that has nothing but a key and a number.
fn key_of_number(entry: &[u8]) -> Option<&[u8]> {
    let mut rest = Reader::new(entry);
    let key = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    (rest.accept(0x12) && rest.accept(5) && rest.accept(0x0d) && rest.rest().len() == 4)
        .then_some(key)
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;
    use outrigger_proto::outrigger::v1::{self, value::Kind};
    use prost::Message;

    use super::*;
    use crate::{Metadata, Plan};

    fn plan() -> Plan {
        let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": [
            {"tensor": "t", "entity": "treatment", "dtype": "float32", "features": [
              {"name": "a", "default": 0.5}, {"name": "b", "default": 0.25},
              {"name": "any", "default": 0, "allow_non_finite": true}]}],
            "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]}"#;
        Plan::compile(Metadata::parse(json).expect("valid"))
    }

    fn treatment(id: &str, name: &str, value: f32) -> Vec<u8> {
        let value = v1::Value { kind: Some(Kind::Number(value)) };
        let features = [(name.to_owned(), value)].into();
        v1::Treatment { id: id.into(), features }.encode_to_vec()
    }

    /// What the template makes of a treatment: its id, and the row's bytes.
    fn apply<'r>(template: &mut Template<'_>, body: &'r [u8]) -> Option<(&'r [u8], Vec<f32>)> {
        let mut buffers = [Buffer::new(DType::Float32, 3)];
        buffers[0].resize(3);
        let (mut tally, mut unknown) = (Tally::new(1, false), Unknown::new(false));
        let id = template.apply(body, 0, &mut buffers, &mut tally, &mut unknown)?;
        assert_eq!((tally.counts.missing, unknown.count), (2, 0));
        let Buffer::Fixed { bytes, .. } = &buffers[0] else { panic!("fixed") };
        let (floats, _) = bytes.as_chunks();
        Some((id, floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
    }

    #[test]
    fn ids_and_values_may_differ_and_what_is_absent_is_filled_in() {
        let plan = plan();
        let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
        template.learn(&treatment("one", "b", 1.0));
        let other = treatment("a much longer id", "b", -2.0);
        assert_eq!(
            apply(&mut template, &other),
            Some((&b"a much longer id"[..], vec![0.5, -2.0, 0.0]))
        );
    }

    #[test]
    fn other_keys_and_values_that_are_not_finite_are_left_to_others() {
        let plan = plan();
        let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
        template.learn(&treatment("one", "b", 1.0));
        assert_eq!(apply(&mut template, &treatment("one", "a", 1.0)), None);
        assert_eq!(apply(&mut template, &treatment("one", "b", f32::NAN)), None);
        assert_eq!(apply(&mut template, &treatment("one", "bb", 1.0)), None);
    }

    #[test]
    fn values_that_are_not_finite_are_let_through_where_they_may_be() {
        let plan = plan();
        let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
        template.learn(&treatment("", "any", 1.0));
        let infinite = treatment("", "any", f32::INFINITY);
        assert_eq!(
            apply(&mut template, &infinite),
            Some((&b""[..], vec![0.5, 0.25, f32::INFINITY]))
        );
        // A signalling NaN comes out quiet, as it would of a conversion.
        let (_, row) = apply(&mut template, &treatment("", "any", f32::from_bits(0x7f80_0001)))
            .expect("let through");
        assert_eq!(row[2].to_bits(), 0x7fc0_0001);
    }

    #[test]
    fn keys_that_the_model_does_not_name_are_counted_each_time() {
        let plan = plan();
        let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
        let stranger = treatment("", "c", 1.0);
        template.learn(&stranger);
        let (mut tally, mut unknown) = (Tally::new(1, false), Unknown::new(false));
        let mut buffers = [Buffer::new(DType::Float32, 3)];
        buffers[0].resize(3);
        assert!(template.apply(&stranger, 0, &mut buffers, &mut tally, &mut unknown).is_some());
        assert_eq!((tally.counts.missing, unknown.count), (3, 1));
    }

    #[test]
    fn there_is_no_template_any_more_when_none_fits() {
        let plan = plan();
        let mut template = Template::new(&plan.inputs, &plan.fields.treatment, false);
        for _ in 0..=FEW {
            template.learn(&treatment("one", "b", 1.0));
        }
        assert!(!template.trusted && template.shape.is_none());
    }
}
