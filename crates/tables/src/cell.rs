//! The value of one column in one row.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::words::{real, whole};

/// A value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Cell {
    /// No value: null, or an empty cell of CSV.
    #[default]
    Absent,
    /// True or false.
    Flag(bool),
    /// An integer.
    Integer(i64),
    /// An integer above the range of [`Self::Integer`].
    Unsigned(u64),
    /// A float32.
    Single(f32),
    /// A float64.
    Real(f64),
    /// Text.
    Text(String),
    /// The text of a cell of CSV, which does not state its type.
    Untyped(String),
    /// Several values in order.
    List(Vec<Cell>),
    /// Named values, in the order of the file; each name occurs once.
    Object(Vec<(String, Cell)>),
}

impl Cell {
    /// An integer that is not negative.
    pub fn of_unsigned(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Unsigned(value), Self::Integer)
    }

    /// The bytes of the value in memory, about.
    pub fn bytes(&self) -> usize {
        let inner = match self {
            Self::Text(text) | Self::Untyped(text) => text.len(),
            Self::List(cells) => cells.iter().map(Self::bytes).sum(),
            Self::Object(members) => members
                .iter()
                .map(|(name, cell)| size_of::<String>() + name.len() + cell.bytes())
                .sum(),
            _ => 0,
        };
        size_of::<Self>() + inner
    }

    /// The integer that a number is exactly, and 1 or 0 for a boolean; `None` if it is none.
    pub fn integer(&self) -> Option<i128> {
        match *self {
            Self::Flag(flag) => Some(flag.into()),
            Self::Integer(value) => Some(value.into()),
            Self::Unsigned(value) => Some(value.into()),
            Self::Single(value) => whole(value.into()),
            Self::Real(value) => whole(value),
            _ => None,
        }
    }

    /// The float32 next to a number, and 1 or 0 for a boolean; `None` for other values, and numbers that
    /// are too large.
    pub fn single(&self) -> Option<f32> {
        match self {
            // These are rounded once.
            Self::Integer(value) => Some(*value as f32),
            Self::Unsigned(value) => Some(*value as f32),
            Self::Untyped(text) => real(text.trim_ascii()),
            _ => {
                let real = self.real()?;
                Some(real as f32).filter(|single| single.is_finite() || !real.is_finite())
            }
        }
    }

    /// As [`single`](Self::single), as float64; in a cell of CSV, the number that its text states.
    pub fn real(&self) -> Option<f64> {
        match self {
            Self::Flag(flag) => Some(u8::from(*flag).into()),
            Self::Integer(value) => Some(*value as f64),
            Self::Unsigned(value) => Some(*value as f64),
            Self::Single(value) => Some((*value).into()),
            Self::Real(value) => Some(*value),
            Self::Untyped(text) => real(text.trim_ascii()),
            _ => None,
        }
    }

    /// True if there is no value.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// The text of a cell of CSV: empty for no value, and JSON for lists and objects.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => Ok(()),
            Self::Flag(flag) => flag.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Single(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
            Self::Text(text) | Self::Untyped(text) => f.write_str(text),
            Self::List(_) | Self::Object(_) => {
                f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
            }
        }
    }
}

/// As JSON. NaN and infinities are null.
impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_unit(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Single(value) => serializer.serialize_f32(*value),
            Self::Real(value) => serializer.serialize_f64(*value),
            Self::Text(text) | Self::Untyped(text) => serializer.serialize_str(text),
            Self::List(cells) => serializer.collect_seq(cells),
            Self::Object(cells) => {
                let mut map = serializer.serialize_map(Some(cells.len()))?;
                for (name, cell) in cells {
                    map.serialize_entry(name, cell)?;
                }
                map.end()
            }
        }
    }
}

/// A name that occurs more than once.
pub(crate) fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float32_is_written_with_as_few_digits_as_identify_it() {
        assert_eq!(serde_json::to_string(&Cell::Single(0.1)).expect("JSON"), "0.1");
        assert_eq!(Cell::Single(0.1).to_string(), "0.1");
        assert_eq!(Cell::Unsigned(u64::MAX).to_string(), "18446744073709551615");
        assert_eq!(Cell::List(vec![Cell::Single(0.1), Cell::Absent]).to_string(), "[0.1,null]");
    }
}
