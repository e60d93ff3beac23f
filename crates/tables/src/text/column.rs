//! The types that the values of columns are read as.

use std::fmt;

use arrow_schema::{DataType, Field};
use serde::{Deserialize, Serialize};

/// The key of a field's metadata that says that its texts are JSON.
const JSON: &str = "outrigger.json";

/// A column of a file of text, with the type that its values are read as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextColumn {
    /// Its name.
    pub name: String,
    /// The type of its values, without the lists around them.
    pub leaf: Leaf,
    /// The lists around a value.
    pub lists: Lists,
}

/// The type of single values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaf {
    /// True or false; in CSV also 1 and 0, and in any case of letters.
    Flag,
    /// An integer of 64 bits.
    Integer,
    /// An integer of 64 bits that is not negative.
    Unsigned,
    /// A float32. In JSON, the texts `NaN`, `Infinity` and `-Infinity` are such numbers.
    Single,
    /// A float64, as [`Self::Single`].
    Real,
    /// Text in UTF-8.
    Text,
    /// Any value of JSON, as its text.
    Json,
}

/// The type in a sentence: `a float32`.
impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "a boolean",
            Self::Integer => "an integer of 64 bits",
            Self::Unsigned => "an integer of 64 bits without a sign",
            Self::Single => "a float32",
            Self::Real => "a float64",
            Self::Text => "a text",
            Self::Json => "a value of JSON",
        })
    }
}

/// The lists around the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lists {
    /// A row has a value in so many lists; 0 for a single value.
    Depth(usize),
    /// A row has one value or values in lists of any depth. They become one list.
    Flat,
}

impl TextColumn {
    /// A column of single values.
    pub fn of(name: &str, leaf: Leaf) -> Self {
        Self { name: name.to_owned(), leaf, lists: Lists::Depth(0) }
    }

    /// The column of the arrays.
    pub fn field(&self) -> Field {
        let leaf = match self.leaf {
            Leaf::Flag => DataType::Boolean,
            Leaf::Integer => DataType::Int64,
            Leaf::Unsigned => DataType::UInt64,
            Leaf::Single => DataType::Float32,
            Leaf::Real => DataType::Float64,
            Leaf::Text | Leaf::Json => DataType::Utf8,
        };
        let of = (0..self.levels()).fold(leaf, |of, _| DataType::new_list(of, true));
        let field = Field::new(&self.name, of, true);
        match self.leaf {
            Leaf::Json => field.with_metadata([(JSON.to_owned(), String::new())]),
            _ => field,
        }
    }

    /// The number of lists around a value in the arrays.
    pub(super) fn levels(&self) -> usize {
        match self.lists {
            Lists::Depth(depth) => depth,
            Lists::Flat => 1,
        }
    }
}

/// True if the texts of a column are values of JSON.
pub fn is_json(field: &Field) -> bool {
    field.metadata().contains_key(JSON)
}
