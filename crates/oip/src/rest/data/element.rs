//! Elements of tensors in JSON, by datatype.

use outrigger_json::{
    Cursor, Odd, Read,
    number::{self, Number},
};

use super::super::fields::Reading;
use crate::DataType;

/// An element of a tensor, which is read from JSON and appended as bytes.
pub(super) trait Element {
    /// Reads an element and appends its bytes.
    ///
    /// # Errors
    /// The next value is no such element; the cursor may have moved.
    fn read(cursor: &mut Cursor<'_>, reading: Reading, out: &mut Vec<u8>) -> Read<()>;
}

/// An element of [`DataType::Bytes`].
pub(super) struct Text;

impl Element for Text {
    fn read(cursor: &mut Cursor<'_>, _: Reading, out: &mut Vec<u8>) -> Read<()> {
        let (text, start) = (cursor.text()?, out.len());
        out.extend_from_slice(&[0; size_of::<u32>()]);
        let begin = out.len();
        text.append(out)?;
        let length = u32::try_from(out.len() - begin).map_err(|_| Odd)?;
        out[start..begin].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }
}

impl Element for bool {
    fn read(cursor: &mut Cursor<'_>, reading: Reading, out: &mut Vec<u8>) -> Read<()> {
        let value = match cursor.peek() {
            Some(b't') => cursor.word("true").map(|()| true)?,
            Some(b'f') => cursor.word("false").map(|()| false)?,
            _ => match (reading, number::read(&mut cursor.rest)) {
                (Reading::Lenient, Some(Number::Integer(value @ 0..=1))) => value == 1,
                _ => return Err(Odd),
            },
        };
        out.push(value.into());
        Ok(())
    }
}

macro_rules! integers {
    ($($kind:ty)*) => {$(
        impl Element for $kind {
            #[inline]
            fn read(cursor: &mut Cursor<'_>, _: Reading, out: &mut Vec<u8>) -> Read<()> {
                let before = cursor.rest;
                let value = match number::read(&mut cursor.rest).ok_or(Odd)? {
                    Number::Integer(value) => Self::try_from(value).map_err(|_| Odd)?,
                    Number::Real(_) => exact(&before[..before.len() - cursor.rest.len()])?,
                };
                out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 i8 i16 i32 i64 }

/// An integer that is beyond 63 bits, or is -0.
#[cold]
fn exact<T: TryFrom<i128>>(text: &[u8]) -> Read<T> {
    let value: i128 = str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Odd)?;
    T::try_from(value).map_err(|_| Odd)
}

impl Element for f32 {
    #[inline]
    fn read(cursor: &mut Cursor<'_>, reading: Reading, out: &mut Vec<u8>) -> Read<()> {
        let value = match number::read(&mut cursor.rest) {
            Some(number) => number.to_f32(),
            None => not_finite(cursor, reading)? as Self,
        };
        if !value.is_finite() && reading == Reading::Strict {
            return Err(Odd);
        }
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }
}

impl Element for f64 {
    #[inline]
    fn read(cursor: &mut Cursor<'_>, reading: Reading, out: &mut Vec<u8>) -> Read<()> {
        let value = match number::read(&mut cursor.rest) {
            Some(Number::Integer(value)) => value as Self,
            Some(Number::Real(value)) => value,
            None => not_finite(cursor, reading)?,
        };
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }
}

/// A value that is not finite, as servers write it.
#[cold]
fn not_finite(cursor: &mut Cursor<'_>, reading: Reading) -> Read<f64> {
    const WORDS: [(&[u8], f64); 4] = [
        (b"null", f64::NAN),
        (b"NaN", f64::NAN),
        (b"Infinity", f64::INFINITY),
        (b"-Infinity", f64::NEG_INFINITY),
    ];
    match reading {
        Reading::Strict => Err(Odd),
        Reading::Lenient => {
            let found = WORDS.into_iter().find(|(word, _)| cursor.accept(word));
            found.map(|(_, value)| value).ok_or(Odd)
        }
    }
}

/// The values that a datatype takes.
pub(super) const fn expected(datatype: DataType) -> &'static str {
    match datatype {
        DataType::Bool => "true and false",
        DataType::Uint8 => "whole numbers from 0 to 255",
        DataType::Uint16 => "whole numbers from 0 to 65535",
        DataType::Uint32 => "whole numbers from 0 to 4294967295",
        DataType::Uint64 => "whole numbers from 0 to 18446744073709551615",
        DataType::Int8 => "whole numbers from -128 to 127",
        DataType::Int16 => "whole numbers from -32768 to 32767",
        DataType::Int32 => "whole numbers from -2147483648 to 2147483647",
        DataType::Int64 => "whole numbers from -9223372036854775808 to 9223372036854775807",
        DataType::Fp32 => "numbers up to 3.4028235e38",
        DataType::Fp64 | DataType::Fp16 | DataType::Bf16 => "numbers",
        DataType::Bytes => "strings",
    }
}

/// The most characters of a number that are quoted.
const QUOTED: usize = 40;

/// Describes the value that comes next; `None` if it is no JSON, and no number that is not finite.
pub(super) fn describe(cursor: &Cursor<'_>) -> Option<String> {
    let rest = cursor.rest;
    for word in ["NaN", "Infinity", "-Infinity"] {
        if rest.starts_with(word.as_bytes()) {
            return Some(format!("{word}, which is no JSON"));
        }
    }
    let found = match rest.first()? {
        b'"' => "a string",
        b'n' => "null",
        b't' => "true",
        b'f' => "false",
        b'[' => "an array",
        b'{' => "an object",
        b'-' | b'0'..=b'9' => {
            let is_of_number =
                |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
            let number: String = rest
                .iter()
                .take(QUOTED)
                .take_while(|byte| is_of_number(byte))
                .map(|byte| char::from(*byte))
                .collect();
            return Some(number);
        }
        _ => return None,
    };
    Some(found.to_owned())
}
