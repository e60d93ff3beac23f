//! The values of a vector feature, as they are read.

use outrigger_core::DType;
use outrigger_json::{
    Cursor, Odd, Read,
    number::{self, Number},
};
use outrigger_proto::raw::write::put_bytes;

use crate::{metadata::MAX_LENGTH, value::Value};

/// Values of one type. Those beyond the feature's length are counted but not kept.
#[derive(Debug, Default)]
pub(super) struct Vector {
    of: Type,
    /// The number of values sent.
    pub(super) count: usize,
    /// Whole numbers, and flags as 0 or 1.
    integers: Vec<i64>,
    /// Little-endian float64.
    reals: Vec<u8>,
    /// As in an encoded `TextList`.
    texts: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Type {
    #[default]
    Nothing,
    Integers,
    Reals,
    Texts,
    Flags,
}

impl Vector {
    /// Reads an array for a feature of `length` values, in place of the one before.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>, length: usize) -> Read<()> {
        (self.of, self.count) = (Type::Nothing, 0);
        self.integers.clear();
        self.reals.clear();
        self.texts.clear();
        cursor.array(|cursor| {
            self.count += 1;
            self.item(cursor, self.count <= length)
        })?;
        // A longer one has an error of its own.
        if self.count <= MAX_LENGTH { Ok(()) } else { Err(Odd) }
    }

    #[inline]
    fn item(&mut self, cursor: &mut Cursor<'_>, kept: bool) -> Read<()> {
        match cursor.peek() {
            Some(b'"') => {
                let text = cursor.text()?.read()?;
                self.becomes(Type::Texts)?;
                if kept {
                    put_bytes(1, &text, &mut self.texts);
                }
            }
            Some(byte @ (b't' | b'f')) => {
                cursor.word(if byte == b't' { "true" } else { "false" })?;
                self.becomes(Type::Flags)?;
                if kept {
                    self.integers.push((byte == b't').into());
                }
            }
            _ => self.number(number::read(&mut cursor.rest).ok_or(Odd)?, kept)?,
        }
        Ok(())
    }

    /// Whole numbers among fractions become fractions.
    #[inline]
    fn number(&mut self, number: Number, kept: bool) -> Read<()> {
        match (self.of, number) {
            (Type::Reals, Number::Integer(value)) => self.real(value as f64, kept),
            (Type::Integers, Number::Real(value)) => {
                self.of = Type::Reals;
                self.reals.extend(self.integers.iter().flat_map(|it| (*it as f64).to_le_bytes()));
                self.real(value, kept);
            }
            (_, Number::Integer(value)) => {
                self.becomes(Type::Integers)?;
                if kept {
                    self.integers.push(value);
                }
            }
            (_, Number::Real(value)) => {
                self.becomes(Type::Reals)?;
                self.real(value, kept);
            }
        }
        Ok(())
    }

    fn real(&mut self, value: f64, kept: bool) {
        if kept {
            self.reals.extend(value.to_le_bytes());
        }
    }

    /// Refuses a value of another type than those before.
    fn becomes(&mut self, of: Type) -> Read<()> {
        if self.of != Type::Nothing && self.of != of {
            return Err(Odd);
        }
        self.of = of;
        Ok(())
    }

    /// The values that were kept, for a tensor of `dtype`.
    pub(super) fn value(&self, dtype: DType) -> Read<Value<'_>> {
        Ok(match self.of {
            Type::Nothing => Value::PackedFloats(&[]),
            Type::Integers => Value::Integers(&self.integers),
            Type::Reals => Value::PackedReals(&self.reals),
            Type::Texts => Value::EncodedTexts(&self.texts, self.count),
            Type::Flags if dtype != DType::String => Value::Integers(&self.integers),
            Type::Flags => return Err(Odd),
        })
    }
}
