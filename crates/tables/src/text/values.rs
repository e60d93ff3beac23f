//! Single values of a column.

use std::{fmt, str::FromStr, sync::Arc};

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, StringArray, UInt64Array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use outrigger_json::{
    Cursor, Odd,
    number::{self, Number},
};

use super::Leaf;
use crate::words::{flag, integer, real};

/// The most characters of a value that are quoted.
const QUOTED: usize = 40;

/// The reason why a value is not read.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It is no JSON.
    Syntax,
    /// The type does not hold it.
    Value(String),
}

impl From<Odd> for Fault {
    fn from(_: Odd) -> Self {
        Self::Syntax
    }
}

/// Values of one type.
#[derive(Debug)]
pub(super) enum Values {
    Flags(Vec<bool>),
    Integers(Vec<i64>),
    Unsigned(Vec<u64>),
    Singles(Vec<f32>),
    Reals(Vec<f64>),
    Texts(Texts),
    /// Texts that are JSON.
    Json(Texts),
}

/// Texts, one after the other.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl Texts {
    fn end(&mut self) {
        // The texts of a batch have far less than 2 GiB.
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        let end = self.ends.last().and_then(|end| usize::try_from(*end).ok());
        self.bytes.truncate(end.unwrap_or(0));
    }
}

impl Values {
    pub(super) fn new(leaf: Leaf) -> Self {
        match leaf {
            Leaf::Flag => Self::Flags(Vec::new()),
            Leaf::Integer => Self::Integers(Vec::new()),
            Leaf::Unsigned => Self::Unsigned(Vec::new()),
            Leaf::Single => Self::Singles(Vec::new()),
            Leaf::Real => Self::Reals(Vec::new()),
            Leaf::Text => Self::Texts(Texts::default()),
            Leaf::Json => Self::Json(Texts::default()),
        }
    }

    /// Removes the values after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        match self {
            Self::Flags(values) => values.truncate(count),
            Self::Integers(values) => values.truncate(count),
            Self::Unsigned(values) => values.truncate(count),
            Self::Singles(values) => values.truncate(count),
            Self::Reals(values) => values.truncate(count),
            Self::Texts(texts) | Self::Json(texts) => texts.truncate(count),
        }
    }

    /// Appends a value that stands for none.
    pub(super) fn absent(&mut self) {
        match self {
            Self::Flags(values) => values.push(false),
            Self::Integers(values) => values.push(0),
            Self::Unsigned(values) => values.push(0),
            Self::Singles(values) => values.push(0.0),
            Self::Reals(values) => values.push(0.0),
            Self::Texts(texts) | Self::Json(texts) => texts.end(),
        }
    }

    /// Appends the value of JSON that comes next, which is not null.
    ///
    /// # Errors
    /// It is no JSON, or no value of the type. Some of it may have been appended.
    pub(super) fn json(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let start = *cursor;
        match self {
            Self::Flags(values) => values.push(match cursor.peek() {
                Some(b't') => cursor.word("true").map(|()| true)?,
                Some(b'f') => cursor.word("false").map(|()| false)?,
                Some(b'0' | b'1') => match number::read(&mut cursor.rest) {
                    Some(Number::Integer(value @ 0..=1)) => value == 1,
                    _ => return Err(misfit(start, Leaf::Flag)),
                },
                _ => return Err(misfit(start, Leaf::Flag)),
            }),
            Self::Integers(values) => match number::read(&mut cursor.rest) {
                Some(Number::Integer(value)) => values.push(value),
                _ => values.push(whole(start, cursor, Leaf::Integer)?),
            },
            Self::Unsigned(values) => {
                let _ = number::read(&mut cursor.rest);
                values.push(whole(start, cursor, Leaf::Unsigned)?);
            }
            Self::Singles(values) => {
                let value = match number::read(&mut cursor.rest) {
                    Some(number) => Some(number.to_f32()).filter(|value| value.is_finite()),
                    None => other(cursor)?.map(|value| value as f32),
                };
                values.push(value.ok_or_else(|| misfit(start, Leaf::Single))?);
            }
            Self::Reals(values) => {
                let value = match number::read(&mut cursor.rest) {
                    Some(Number::Integer(value)) => Some(value as f64),
                    Some(Number::Real(value)) => Some(value),
                    None => other(cursor)?,
                };
                values.push(value.ok_or_else(|| misfit(start, Leaf::Real))?);
            }
            Self::Texts(texts) => {
                if cursor.peek() != Some(b'"') {
                    return Err(misfit(start, Leaf::Text));
                }
                cursor.text()?.append(&mut texts.bytes)?;
                texts.end();
            }
            Self::Json(texts) => {
                cursor.value(0)?;
                texts.bytes.extend_from_slice(between(start, *cursor));
                texts.end();
            }
        }
        Ok(())
    }

    /// Appends the value that a cell of CSV states.
    ///
    /// # Errors
    /// It states none of the type.
    pub(super) fn text(&mut self, cell: &str) -> Result<(), Fault> {
        let misfit = |expected: Leaf| Fault::Value(format!("{} is not {expected}", quoted(cell)));
        let word = cell.trim_ascii();
        match self {
            Self::Flags(values) => {
                let value = match word {
                    "1" => Some(true),
                    "0" => Some(false),
                    _ => flag(word),
                };
                values.push(value.ok_or_else(|| misfit(Leaf::Flag))?);
            }
            Self::Integers(values) => {
                values.push(integer(word).ok_or_else(|| misfit(Leaf::Integer))?);
            }
            Self::Unsigned(values) => {
                values.push(integer(word).ok_or_else(|| misfit(Leaf::Unsigned))?);
            }
            Self::Singles(values) => {
                let value = real(word).or_else(|| flag(word).map(|it| u8::from(it).into()));
                values.push(value.ok_or_else(|| misfit(Leaf::Single))?);
            }
            Self::Reals(values) => {
                let value = real(word).or_else(|| flag(word).map(|it| u8::from(it).into()));
                values.push(value.ok_or_else(|| misfit(Leaf::Real))?);
            }
            Self::Texts(texts) | Self::Json(texts) => {
                texts.bytes.extend_from_slice(cell.as_bytes());
                texts.end();
            }
        }
        Ok(())
    }

    /// The values as an array, of which those are present that `present` says. None are left.
    pub(super) fn take(&mut self, present: Option<NullBuffer>) -> ArrayRef {
        match self {
            Self::Flags(values) => {
                Arc::new(BooleanArray::new(std::mem::take(values).into(), present))
            }
            Self::Integers(values) => {
                Arc::new(Int64Array::new(std::mem::take(values).into(), present))
            }
            Self::Unsigned(values) => {
                Arc::new(UInt64Array::new(std::mem::take(values).into(), present))
            }
            Self::Singles(values) => {
                Arc::new(Float32Array::new(std::mem::take(values).into(), present))
            }
            Self::Reals(values) => {
                Arc::new(Float64Array::new(std::mem::take(values).into(), present))
            }
            Self::Texts(texts) | Self::Json(texts) => {
                let Texts { bytes, ends } = std::mem::take(texts);
                let offsets: Vec<i32> = std::iter::once(0).chain(ends).collect();
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(StringArray::new(offsets, Buffer::from_vec(bytes), present))
            }
        }
    }
}

/// The text that was read between two places.
fn between<'a>(start: Cursor<'a>, end: Cursor<'a>) -> &'a [u8] {
    &start.rest[..start.rest.len() - end.rest.len()]
}

/// The integer whose text was read, or a boolean that comes next.
fn whole<T: FromStr + TryFrom<i128>>(
    start: Cursor<'_>,
    cursor: &mut Cursor<'_>,
    expected: Leaf,
) -> Result<T, Fault> {
    if matches!(cursor.peek(), Some(b't' | b'f')) {
        cursor.value(0)?;
    }
    let text = str::from_utf8(between(start, *cursor)).ok();
    text.and_then(integer).ok_or_else(|| misfit(start, expected))
}

/// Reads a boolean as 0 or 1, or the text of a number that is not finite (the JSON mapping of Protocol
/// Buffers); `None` if neither comes next.
fn other(cursor: &mut Cursor<'_>) -> Result<Option<f64>, Odd> {
    match cursor.peek() {
        Some(b't') => return cursor.word("true").map(|()| Some(1.0)),
        Some(b'f') => return cursor.word("false").map(|()| Some(0.0)),
        Some(b'"') => {}
        _ => return Ok(None),
    }
    Ok(match cursor.text()?.plain() {
        Some(b"NaN") => Some(f64::NAN),
        Some(b"Infinity") => Some(f64::INFINITY),
        Some(b"-Infinity") => Some(f64::NEG_INFINITY),
        _ => None,
    })
}

/// The fault of a value that is not of the type.
#[cold]
pub(super) fn misfit(value: Cursor<'_>, expected: impl fmt::Display) -> Fault {
    let found = match value.peek() {
        Some(b'"') => "a text".to_owned(),
        Some(b't' | b'f') => "a boolean".to_owned(),
        Some(b'[') => "a list".to_owned(),
        Some(b'{') => "an object".to_owned(),
        Some(b'n') => "null".to_owned(),
        Some(b'-' | b'0'..=b'9') => {
            let is_of_number = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
            let digits = value.rest.iter().take(QUOTED).take_while(|byte| is_of_number(byte));
            digits.map(|byte| char::from(*byte)).collect()
        }
        _ => return Fault::Syntax,
    };
    Fault::Value(format!("{found} is not {expected}"))
}

/// The beginning of a cell in quotes.
fn quoted(cell: &str) -> String {
    format!("{:?}", cell.chars().take(QUOTED).collect::<String>())
}
