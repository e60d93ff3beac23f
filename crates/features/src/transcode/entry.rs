//! One map entry of features: its key and its value.

use outrigger_proto::outrigger::v1;
use prost::Message;

use super::{
    schema,
    wire::{MAX_DEPTH, Malformed, Reader},
};
use crate::request::{Scalar, Value};

/// What may still nest within an entry: the request, the treatment (or the
/// user's features) and the entry are three levels.
const DEPTH: u32 = MAX_DEPTH - 2;

/// A key, and what was sent for it.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// Bytes that are UTF-8 only if [`Self::check_key`] says so.
    pub(super) key: &'a [u8],
    pub(super) value: Sent<'a>,
}

/// A value as it was sent.
#[derive(Debug)]
pub(super) enum Sent<'a> {
    /// The bits of a float32, by far the most frequent.
    Number(u32),
    Value(Value<'a>),
    /// No kind: absence.
    Nothing,
    /// Written in a way that few choose: in parts, unpacked, with unknown
    /// fields. Decoded in general.
    Odd(Box<v1::Value>),
}

/// An entry on its own, for prost.
#[derive(Clone, PartialEq, Message)]
struct Decoded {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<v1::Value>,
}

impl<'a> Entry<'a> {
    /// Reads the body of an entry. Everything but the key is checked.
    #[inline]
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        if let Some((key, value)) = split(body)
            && let Some(value) = read_value(value)
        {
            return Ok(Self { key, value });
        }
        Self::read_odd(body)
    }

    #[cold]
    fn read_odd(body: &'a [u8]) -> Result<Self, Malformed> {
        schema::ENTRY.validate(body, DEPTH)?;
        let decoded = Decoded::decode(body).map_err(|_| Malformed::Truncated)?;
        let value = decoded.value.filter(|value| value.kind.is_some());
        let value = value.map_or(Sent::Nothing, |value| Sent::Odd(Box::new(value)));
        Ok(Self { key: last_key(body)?, value })
    }
}

/// The last key of an entry that has been validated.
fn last_key(body: &[u8]) -> Result<&[u8], Malformed> {
    let (mut rest, mut key) = (Reader::new(body), &[][..]);
    while !rest.is_empty() {
        match rest.key()? {
            (1, wire_type) => key = rest.bytes_field(wire_type)?,
            (number, wire_type) => rest.skip(number, wire_type, DEPTH)?,
        }
    }
    Ok(key)
}

/// The key and the value of an entry that has both, once, in order.
#[inline]
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = Reader::new(body);
    let key = if rest.accept(0x0a) { rest.bytes().ok()? } else { &[] };
    let value = if rest.accept(0x12) { rest.bytes().ok()? } else { &[] };
    rest.is_empty().then_some((key, value))
}

/// A value that is one field and nothing else; `None` if it is odd or wrong.
#[inline]
fn read_value(body: &[u8]) -> Option<Sent<'_>> {
    if let [0x0d, bits @ ..] = body
        && let Ok(bits) = bits.try_into()
    {
        return Some(Sent::Number(u32::from_le_bytes(bits)));
    }
    read_other(body)
}

fn read_other(body: &[u8]) -> Option<Sent<'_>> {
    let Some((key, rest)) = body.split_first() else { return Some(Sent::Nothing) };
    let mut rest = Reader::new(rest);
    let value = match key {
        0x12 => Value::One(Scalar::Text(rest.text().ok()?)),
        0x18 => Value::One(Scalar::Integer(rest.varint().ok()?.cast_signed())),
        0x20 => Value::One(Scalar::Flag(rest.varint().ok()? != 0)),
        0x29 => {
            let real = f64::from_le_bytes(rest.rest().try_into().ok()?);
            return Some(Sent::Value(Value::One(Scalar::Real(real))));
        }
        0x32 => Value::PackedFloats(packed(rest.bytes().ok()?, 4)?),
        0x3a => texts(rest.bytes().ok()?)?,
        0x42 => integers(packed(rest.bytes().ok()?, 1)?)?,
        0x4a => Value::PackedReals(packed(rest.bytes().ok()?, 8)?),
        _ => return None,
    };
    rest.is_empty().then_some(Sent::Value(value))
}

/// The packed elements of a list that has nothing else, of `size` bytes each.
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
        rest.text().ok()?;
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
