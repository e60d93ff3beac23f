//! Validation of encoded messages without decoding them, for the parts that the
//! transcoder does not read itself.

use crate::{
    entries::Entries,
    wire::{Malformed, Reader, WireType},
};

/// The fields of a message, by number.
pub(super) struct Schema(&'static [(u32, Kind)]);

/// The type of a field.
enum Kind {
    Varint,
    /// Repeated, packed or not.
    Varints,
    Fixed32,
    Fixed32s,
    Fixed64,
    Fixed64s,
    Text,
    Bytes,
    Message(&'static Schema),
    /// A map's entry; prost does not check its wire type.
    Entry(&'static Schema),
}

pub(super) static REQUEST: Schema = Schema(&[
    (1, Kind::Message(&SELECTOR)),
    (2, Kind::Text),
    (3, Kind::Text),
    (4, Kind::Message(&FEATURES)),
    (5, Kind::Message(&OBJECT)),
    (6, Kind::Message(&TREATMENT)),
    (7, Kind::Message(&TABLE)),
    (9, Kind::Message(&OPTIONS)),
]);
pub(super) static SELECTOR: Schema = Schema(&[(1, Kind::Text), (2, Kind::Text), (3, Kind::Text)]);
pub(super) static OPTIONS: Schema = Schema(&[
    (1, Kind::Varint),
    (2, Kind::Varint),
    (3, Kind::Text),
    (4, Kind::Varint),
    (5, Kind::Varint),
]);
pub(super) static FEATURES: Schema = Schema(&[(1, Kind::Entry(&ENTRY))]);
static TREATMENT: Schema = Schema(&[(1, Kind::Text), (2, Kind::Entry(&ENTRY))]);
pub(super) static ENTRY: Schema = Schema(&[(1, Kind::Text), (2, Kind::Message(&VALUE))]);
static VALUE: Schema = Schema(&[
    (1, Kind::Fixed32),
    (2, Kind::Text),
    (3, Kind::Varint),
    (4, Kind::Varint),
    (5, Kind::Fixed64),
    (6, Kind::Message(&NUMBERS)),
    (7, Kind::Message(&TEXTS)),
    (8, Kind::Message(&INTEGERS)),
    (9, Kind::Message(&REALS)),
]);
static NUMBERS: Schema = Schema(&[(1, Kind::Fixed32s)]);
static REALS: Schema = Schema(&[(1, Kind::Fixed64s)]);
static TEXTS: Schema = Schema(&[(1, Kind::Text)]);
static INTEGERS: Schema = Schema(&[(1, Kind::Varints)]);
static TABLE: Schema = Schema(&[
    (1, Kind::Text),
    (2, Kind::Message(&MATRIX)),
    (3, Kind::Message(&TEXT_COLUMN)),
    (4, Kind::Message(&INTEGER_COLUMN)),
    (5, Kind::Varint),
    (6, Kind::Message(&NUMBER_COLUMN)),
]);
static MATRIX: Schema =
    Schema(&[(1, Kind::Text), (2, Kind::Bytes), (3, Kind::Varints), (4, Kind::Bytes)]);
static TEXT_COLUMN: Schema = Schema(&[
    (1, Kind::Text),
    (2, Kind::Text),
    (3, Kind::Varint),
    (4, Kind::Bytes),
    (5, Kind::Varints),
]);
static INTEGER_COLUMN: Schema = Schema(&[
    (1, Kind::Text),
    (2, Kind::Varints),
    (3, Kind::Varint),
    (4, Kind::Bytes),
    (5, Kind::Varints),
]);
static NUMBER_COLUMN: Schema = Schema(&[
    (1, Kind::Text),
    (2, Kind::Bytes),
    (3, Kind::Varint),
    (4, Kind::Bytes),
    (5, Kind::Varints),
]);

/// `google.protobuf.Struct`.
pub(super) static OBJECT: Schema = Schema(&[(1, Kind::Entry(&OBJECT_ENTRY))]);
static OBJECT_ENTRY: Schema = Schema(&[(1, Kind::Text), (2, Kind::Message(&OBJECT_VALUE))]);
static OBJECT_VALUE: Schema = Schema(&[
    (1, Kind::Varint),
    (2, Kind::Fixed64),
    (3, Kind::Text),
    (4, Kind::Varint),
    (5, Kind::Message(&OBJECT)),
    (6, Kind::Message(&OBJECT_LIST)),
]);
static OBJECT_LIST: Schema = Schema(&[(1, Kind::Message(&OBJECT_VALUE))]);

impl Schema {
    /// Accepts exactly the messages that prost would decode with `depth` more levels of nesting
    /// allowed.
    pub(super) fn validate(&self, message: &[u8], depth: u32) -> Result<(), Malformed> {
        self.validate_within(message, depth, &mut Entries(usize::MAX))
    }

    /// As [`Self::validate`], for a message of at most `left` fields, those of its messages
    /// included.
    pub(super) fn validate_within(
        &self,
        message: &[u8],
        depth: u32,
        left: &mut Entries,
    ) -> Result<(), Malformed> {
        let mut rest = Reader::new(message);
        while !rest.is_empty() {
            let (number, wire_type) = rest.key()?;
            left.take()?;
            match self.0.iter().find(|(known, _)| *known == number) {
                Some((_, kind)) => kind.validate(&mut rest, wire_type, depth, left)?,
                None => rest.skip(number, wire_type, depth)?,
            }
        }
        Ok(())
    }

    fn validate_nested(
        &self,
        message: &[u8],
        depth: u32,
        left: &mut Entries,
    ) -> Result<(), Malformed> {
        self.validate_within(message, depth.checked_sub(1).ok_or(Malformed::Depth)?, left)
    }
}

impl Kind {
    fn validate(
        &self,
        rest: &mut Reader<'_>,
        wire_type: WireType,
        depth: u32,
        left: &mut Entries,
    ) -> Result<(), Malformed> {
        match self {
            Self::Varint => rest.varint_field(wire_type).map(drop),
            Self::Varints => rest.varints_field(wire_type, drop),
            Self::Fixed32 => rest.fixed32_field(wire_type).map(drop),
            Self::Fixed32s => rest.fixed_field(wire_type, WireType::Fixed32, 4).map(drop),
            Self::Fixed64 => rest.fixed64_field(wire_type).map(drop),
            Self::Fixed64s => rest.fixed_field(wire_type, WireType::Fixed64, 8).map(drop),
            Self::Text => rest.text_field(wire_type).map(drop),
            Self::Bytes => rest.bytes_field(wire_type).map(drop),
            Self::Message(schema) => {
                schema.validate_nested(rest.bytes_field(wire_type)?, depth, left)
            }
            Self::Entry(schema) => schema.validate_nested(rest.bytes()?, depth, left),
        }
    }
}
