//! Values by the rules of the wire format, for any valid encoding: the last of several
//! values wins, and the parts of a list are merged into one list.

use super::request::{Parts, add_part};
use crate::{
    value::Scalar,
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};

/// A value after all its fields are merged.
#[derive(Debug, Default)]
pub(super) enum Merged<'r> {
    #[default]
    Absent,
    One(Scalar<'r>),
    List(ListKind, Parts<'r>),
    /// A `google.protobuf.Struct`.
    Object(Parts<'r>),
}

/// A single field of a value.
pub(super) enum Piece<'r> {
    Null,
    One(Scalar<'r>),
    List(ListKind, &'r [u8]),
    Object(&'r [u8]),
}

/// The kinds of list messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Numbers,
    Reals,
    Integers,
    Texts,
    /// `outrigger.v1.SparseList`.
    Sparse,
    /// `google.protobuf.ListValue`.
    Values,
}

/// Reads a field of a value, after its number and wire type; `None` for an unknown field.
pub(super) type Field =
    for<'r> fn(u32, WireType, &mut Reader<'r>) -> Result<Option<Piece<'r>>, Malformed>;

impl<'r> Merged<'r> {
    /// Reads a value from a message.
    pub(super) fn of(message: &'r [u8], field: Field) -> Result<Self, Malformed> {
        let mut value = Self::default();
        value.merge(message, field)?;
        Ok(value)
    }

    /// Whether a value was sent.
    pub(super) fn is_sent(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Merges a further part of a message into the value.
    fn merge(&mut self, message: &'r [u8], field: Field) -> Result<(), Malformed> {
        let mut rest = Reader::new(message);
        while !rest.is_empty() {
            let (number, wire_type) = rest.key()?;
            if let Some(piece) = field(number, wire_type, &mut rest)? {
                self.add(piece);
            }
        }
        Ok(())
    }

    fn add(&mut self, piece: Piece<'r>) {
        match (self, piece) {
            (Self::List(kind, parts), Piece::List(other, part)) if *kind == other => {
                add_part(parts, part);
            }
            (Self::Object(parts), Piece::Object(part)) => add_part(parts, part),
            (value, Piece::Null) => *value = Self::Absent,
            (value, Piece::One(scalar)) => *value = Self::One(scalar),
            (value, Piece::List(kind, part)) => {
                *value = Self::List(kind, Parts::from_slice(&[part]));
            }
            (value, Piece::Object(part)) => *value = Self::Object(Parts::from_slice(&[part])),
        }
    }
}

/// Reads the key and the value of a map entry that has been validated.
pub(super) fn entry(body: &[u8], field: Field) -> Result<(&[u8], Merged<'_>), Malformed> {
    let (mut rest, mut key, mut value) = (Reader::new(body), &[][..], Merged::default());
    while !rest.is_empty() {
        match rest.key()? {
            (1, wire_type) => key = rest.bytes_field(wire_type)?,
            (2, wire_type) => value.merge(rest.bytes_field(wire_type)?, field)?,
            (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
        }
    }
    Ok((key, value))
}
