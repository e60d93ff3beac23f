//! The columns of a file.

use std::sync::Arc;

/// The names of a row's columns. Rows with the same names share them, so that a comparison of
/// pointers shows whether a row has the columns of the one before.
pub type Names = Arc<[Arc<str>]>;

/// A column of a file that states its columns before its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: Arc<str>,
    /// The type of its values.
    pub kind: Kind,
}

/// A column of a type that no cell has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub name: Arc<str>,
    /// The name of its type.
    pub of: String,
}

/// The type of a column's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Flag,
    /// An integer of 64 bits.
    Integer,
    /// An integer of 64 bits that is not negative.
    Unsigned,
    /// A float32.
    Single,
    /// A float64.
    Real,
    /// Text in UTF-8; every value of a CSV file is text.
    Text,
    /// A list of values of one type.
    List(Box<Kind>),
}

impl Column {
    /// A column.
    pub fn new(name: impl Into<Arc<str>>, kind: Kind) -> Self {
        Self { name: name.into(), kind }
    }
}
