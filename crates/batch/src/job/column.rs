//! The types of columns, as a job states them.

use std::fmt;

use outrigger_oip::DataType;
use outrigger_tables::{Leaf, Lists, TextColumn};
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

/// The type of a column of CSV or JSON Lines: a type of the protocol, or a list with that of its
/// items, such as `[FP32]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnType {
    /// The type of the values.
    pub datatype: DataType,
    /// The number of lists around a value.
    pub depth: usize,
}

/// The most lists around a value.
const DEPTH: usize = 16;

impl ColumnType {
    /// The column of this name with this type.
    pub(crate) fn column(&self, name: &str) -> TextColumn {
        let Self { datatype, depth } = *self;
        TextColumn { name: name.to_owned(), leaf: leaf(datatype), lists: Lists::Depth(depth) }
    }
}

/// The type in which a column of text is read for a tensor. The sizes of integers are checked when
/// they become elements of a tensor.
pub(crate) fn leaf(datatype: DataType) -> Leaf {
    match datatype {
        DataType::Bool => Leaf::Flag,
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 => Leaf::Unsigned,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Leaf::Integer,
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 => Leaf::Single,
        DataType::Fp64 => Leaf::Real,
        DataType::Bytes => Leaf::Text,
    }
}

impl<'de> Deserialize<'de> for ColumnType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = ColumnType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a type such as INT64, or a list with one")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ColumnType, E> {
        match DataType::named(name) {
            Some(
                datatype @ (DataType::Bool
                | DataType::Int64
                | DataType::Uint64
                | DataType::Fp32
                | DataType::Fp64
                | DataType::Bytes),
            ) => Ok(ColumnType { datatype, depth: 0 }),
            _ => Err(E::custom(format_args!(
                "{name:?} is not the type of a column: BOOL, INT64, UINT64, FP32, FP64 or BYTES"
            ))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ColumnType, A::Error> {
        let item: Option<ColumnType> = items.next_element()?;
        match (item, items.next_element::<ColumnType>()?) {
            (Some(item), None) if item.depth < DEPTH => {
                Ok(ColumnType { depth: item.depth + 1, ..item })
            }
            _ => Err(A::Error::custom("a list has one type, that of its items")),
        }
    }
}
