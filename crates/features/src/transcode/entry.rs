//! One map entry of features: its key and its value.

use super::{
    merged::{self, ListKind, Merged, Piece},
    schema,
};
use crate::{
    value::{Scalar, SparseList, Value},
    wire::{MAX_DEPTH, Malformed, Reader, WireType, is_text},
};

/// The depth to which messages may still nest within an entry: the request, the treatment
/// (or the user's features) and the entry are three levels.
const DEPTH: u32 = MAX_DEPTH - 2;

/// Reads an entry with a key and a float32, by far the most frequent kind: the key and
/// the float's bits. The key is not checked to be UTF-8.
#[inline]
pub(super) fn number(body: &[u8]) -> Option<(&[u8], u32)> {
    let (head, tail) = body.split_last_chunk::<7>()?;
    let [0x12, 5, 0x0d, bits @ ..] = *tail else { return None };
    let [0x0a, length, ref key @ ..] = *head else { return None };
    (usize::from(length) == key.len() && length < 0x80).then_some((key, u32::from_le_bytes(bits)))
}

/// Reads the bytes after a key that are a text of less than 126 bytes, by far the most frequent kind
/// after numbers.
#[inline(always)]
pub(super) fn text(rest: &[u8]) -> Option<&[u8]> {
    let [0x12, value, 0x12, length, ref text @ ..] = *rest else { return None };
    let fits = usize::from(length) == text.len() && value == length.wrapping_add(2);
    (fits && value < 0x80 && is_text(text)).then_some(text)
}

/// Reads an entry encoded as common libraries do: the key and the value; `None` if its
/// encoding is unusual or invalid. The key is not checked to be UTF-8.
#[inline]
pub(super) fn usual(body: &[u8]) -> Option<(&[u8], Option<Value<'_>>)> {
    let (key, rest) = split(body)?;
    Some((key, value(rest)?))
}

/// Reads the key and the value of any entry.
///
/// # Errors
/// The bytes are not a valid message.
#[cold]
pub(super) fn any(body: &[u8]) -> Result<(&[u8], Merged<'_>), Malformed> {
    schema::ENTRY.validate(body, DEPTH)?;
    merged::entry(body, field)
}

/// Reads a field of an `outrigger.v1.Value`.
fn field<'r>(
    number: u32,
    wire_type: WireType,
    rest: &mut Reader<'r>,
) -> Result<Option<Piece<'r>>, Malformed> {
    Ok(Some(match number {
        1 => {
            let number = f32::from_le_bytes(rest.fixed32_field(wire_type)?);
            Piece::One(Scalar::Real(number.into()))
        }
        2 => Piece::One(Scalar::Text(rest.bytes_field(wire_type)?)),
        3 => Piece::One(Scalar::Integer(rest.varint_field(wire_type)?.cast_signed())),
        4 => Piece::One(Scalar::Flag(rest.varint_field(wire_type)? != 0)),
        5 => Piece::One(Scalar::Real(f64::from_le_bytes(rest.fixed64_field(wire_type)?))),
        6 => Piece::List(ListKind::Numbers, rest.bytes_field(wire_type)?),
        7 => Piece::List(ListKind::Texts, rest.bytes_field(wire_type)?),
        8 => Piece::List(ListKind::Integers, rest.bytes_field(wire_type)?),
        9 => Piece::List(ListKind::Reals, rest.bytes_field(wire_type)?),
        10 => Piece::List(ListKind::Sparse, rest.bytes_field(wire_type)?),
        _ => {
            rest.skip(number, wire_type, DEPTH)?;
            return Ok(None);
        }
    }))
}

/// Splits an entry that begins with its key: the key, and the bytes after it.
#[inline]
pub(super) fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = Reader::new(body);
    let key = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    Some((key, rest.rest()))
}

/// Reads the value after a key; `None` unless it is the only field left and encoded as
/// common libraries do.
#[inline]
pub(super) fn value(rest: &[u8]) -> Option<Option<Value<'_>>> {
    let mut rest = Reader::new(rest);
    let value = if rest.accept(0x12) { rest.bytes().ok()? } else { &[] };
    if rest.is_empty() { read_value(value) } else { None }
}

/// Reads a value of a single field, or absence; `None` if its encoding is unusual or
/// invalid.
#[inline]
fn read_value(body: &[u8]) -> Option<Option<Value<'_>>> {
    let Some((key, rest)) = body.split_first() else { return Some(None) };
    let mut rest = Reader::new(rest);
    let value = match key {
        0x0d => {
            let number = f32::from_le_bytes(rest.rest().try_into().ok()?);
            return Some(Some(Value::One(Scalar::Real(number.into()))));
        }
        0x12 => Value::One(Scalar::Text(rest.text_bytes().ok()?)),
        0x18 => Value::One(Scalar::Integer(rest.varint().ok()?.cast_signed())),
        0x20 => Value::One(Scalar::Flag(rest.varint().ok()? != 0)),
        0x29 => {
            let real = f64::from_le_bytes(rest.rest().try_into().ok()?);
            return Some(Some(Value::One(Scalar::Real(real))));
        }
        0x32 => Value::PackedFloats(packed(rest.bytes().ok()?, 4)?),
        0x3a => texts(rest.bytes().ok()?)?,
        0x42 => integers(packed(rest.bytes().ok()?, 1)?)?,
        0x4a => Value::PackedReals(packed(rest.bytes().ok()?, 8)?),
        0x52 => {
            let (list, count) = SparseList::read(rest.bytes().ok()?)?;
            Value::Sparse(list, count)
        }
        _ => return None,
    };
    rest.is_empty().then_some(Some(value))
}

/// The packed elements, of `size` bytes each, of a list with no other field.
fn packed(list: &[u8], size: usize) -> Option<&[u8]> {
    let mut rest = Reader::new(list);
    let elements = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    (rest.is_empty() && elements.len().is_multiple_of(size)).then_some(elements)
}

fn texts(list: &[u8]) -> Option<Value<'_>> {
    let (mut rest, mut count) = (Reader::new(list), 0);
    while !rest.is_empty() {
        if !rest.accept(0x0a) {
            return None;
        }
        rest.text_bytes().ok()?;
        count += 1;
    }
    Some(Value::EncodedTexts(list, count))
}

fn integers(packed: &[u8]) -> Option<Value<'_>> {
    let (mut rest, mut count) = (Reader::new(packed), 0);
    while !rest.is_empty() {
        rest.varint().ok()?;
        count += 1;
    }
    Some(Value::PackedIntegers(packed, count))
}
