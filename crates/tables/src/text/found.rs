//! The types that values of JSON have.

use outrigger_json::{
    Cursor, Read, deeper,
    number::{self, Number},
};

use super::{Leaf, Lists, TextColumn};

/// The largest integer below which every integer is a float64.
const EXACT: u64 = 1 << 53;

/// The types of the values of a column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Found {
    /// There are no values.
    #[default]
    Nothing,
    /// Booleans.
    Flags,
    /// Numbers.
    Numbers(Numbers),
    /// Texts.
    Texts,
    /// Lists, with the types of their items.
    Lists(Box<Found>),
    /// Values of several types, or objects.
    Mixed,
}

/// Properties that some numbers of a column have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// A fraction or an exponent.
    real: bool,
    /// A minus sign.
    negative: bool,
    /// An integer that may be no float64.
    inexact: bool,
    /// An integer above those of 64 bits with a sign.
    unsigned: bool,
    /// An integer that 64 bits do not hold.
    wide: bool,
}

impl Found {
    /// The type of the value that comes next, which is read.
    ///
    /// # Errors
    /// It is no JSON.
    pub(super) fn read(cursor: &mut Cursor<'_>, depth: u32) -> Read<Self> {
        Ok(match cursor.peek() {
            Some(b'n') => cursor.word("null").map(|()| Self::Nothing)?,
            Some(b't') => cursor.word("true").map(|()| Self::Flags)?,
            Some(b'f') => cursor.word("false").map(|()| Self::Flags)?,
            Some(b'"') => cursor.text().map(|_| Self::Texts)?,
            Some(b'{') => cursor.pass().map(|()| Self::Mixed)?,
            Some(b'[') => {
                let (depth, mut items) = (deeper(depth)?, Self::Nothing);
                cursor.array(|cursor| {
                    items.merge(Self::read(cursor, depth)?);
                    Ok::<_, outrigger_json::Odd>(())
                })?;
                Self::Lists(items.into())
            }
            _ => Self::Numbers(Numbers::read(cursor)?),
        })
    }

    /// Adds the types of other values.
    pub fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (_, Self::Nothing) | (Self::Mixed, _) => {}
            (Self::Nothing, other) => *self = other,
            (Self::Numbers(numbers), Self::Numbers(others)) => numbers.merge(others),
            (Self::Lists(items), Self::Lists(others)) => items.merge(*others),
            (before, other) if *before == other => {}
            _ => *self = Self::Mixed,
        }
    }

    /// The column that holds all these values exactly. Values of several types, objects, and
    /// integers that no number type holds are its texts of JSON.
    pub fn column(&self, name: &str) -> TextColumn {
        let (mut of, mut depth) = (self, 0);
        while let Self::Lists(items) = of {
            (of, depth) = (items, depth + 1);
        }
        let (leaf, depth) = match of {
            Self::Flags => (Leaf::Flag, depth),
            Self::Numbers(numbers) => match numbers.leaf() {
                Leaf::Json => (Leaf::Json, 0),
                leaf => (leaf, depth),
            },
            Self::Nothing | Self::Texts => (Leaf::Text, depth),
            Self::Lists(_) | Self::Mixed => (Leaf::Json, 0),
        };
        TextColumn { name: name.to_owned(), leaf, lists: Lists::Depth(depth) }
    }
}

impl Numbers {
    fn read(cursor: &mut Cursor<'_>) -> Read<Self> {
        let start = cursor.rest;
        let number = number::read(&mut cursor.rest).ok_or(outrigger_json::Odd)?;
        let text = &start[..start.len() - cursor.rest.len()];
        let negative = text.first() == Some(&b'-');
        Ok(match number {
            Number::Integer(value) => {
                Self { negative, inexact: value.unsigned_abs() > EXACT, ..Self::default() }
            }
            Number::Real(_) if text.iter().any(|byte| b".eE".contains(byte)) => {
                Self { real: true, negative, ..Self::default() }
            }
            // An integer that 63 bits do not hold, or -0.
            Number::Real(value) => {
                let is_unsigned = str::from_utf8(text).is_ok_and(|it| it.parse::<u64>().is_ok());
                let wide = !is_unsigned && value != 0.0;
                let (real, inexact) = (value == 0.0, value != 0.0);
                Self { real, negative, inexact, unsigned: is_unsigned, wide }
            }
        })
    }

    fn merge(&mut self, other: Self) {
        self.real |= other.real;
        self.negative |= other.negative;
        self.inexact |= other.inexact;
        self.unsigned |= other.unsigned;
        self.wide |= other.wide;
    }

    fn leaf(self) -> Leaf {
        match self {
            Self { wide: true, .. }
            | Self { real: true, inexact: true, .. }
            | Self { unsigned: true, negative: true, .. } => Leaf::Json,
            Self { real: true, .. } => Leaf::Real,
            Self { unsigned: true, .. } => Leaf::Unsigned,
            _ => Leaf::Integer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[&str]) -> (Leaf, usize) {
        let mut found = Found::default();
        for value in values {
            let mut cursor = Cursor::new(value.as_bytes());
            found.merge(Found::read(&mut cursor, 0).expect(value));
            assert_eq!(cursor.rest, b"", "{value}");
        }
        let TextColumn { leaf, lists, .. } = found.column("c");
        let Lists::Depth(depth) = lists else { panic!("{lists:?}") };
        (leaf, depth)
    }

    #[test]
    fn all_values_of_a_column_decide_about_its_type() {
        for (values, expected) in [
            (&["1", "-2", "null"][..], (Leaf::Integer, 0)),
            (&["1", "2.5"], (Leaf::Real, 0)),
            (&["-0", "3"], (Leaf::Real, 0)),
            (&["9007199254740993"], (Leaf::Integer, 0)),
            (&["9007199254740993", "0.5"], (Leaf::Json, 0)),
            (&["18446744073709551615", "1"], (Leaf::Unsigned, 0)),
            (&["18446744073709551615", "-1"], (Leaf::Json, 0)),
            (&["18446744073709551616"], (Leaf::Json, 0)),
            (&["1e300"], (Leaf::Real, 0)),
            (&["\"a\"", "null"], (Leaf::Text, 0)),
            (&["\"a\"", "1"], (Leaf::Json, 0)),
            (&["true", "false"], (Leaf::Flag, 0)),
            (&["[[1], []]", "[]", "null"], (Leaf::Integer, 2)),
            (&["[1, [2]]"], (Leaf::Json, 0)),
            (&["[18446744073709551616]"], (Leaf::Json, 0)),
            (&["{\"a\": 1}"], (Leaf::Json, 0)),
            (&["null"], (Leaf::Text, 0)),
        ] {
            assert_eq!(column(values), expected, "{values:?}");
        }
    }
}
