//! The values of arrays: which types of columns hold values of features, and how each is read.

use std::ops::Range;

use arrow_array::{
    Array, ArrowPrimitiveType,
    cast::AsArray as _,
    types::{
        Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type,
        Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
        UInt64Type,
    },
};
use arrow_schema::DataType;

use crate::{Cell, Kind};

/// The type of a column's values; `None` if no feature has such values. A column without a type has no
/// values.
pub fn kind(of: &DataType) -> Option<Kind> {
    Some(match of {
        DataType::Boolean => Kind::Flag,
        DataType::UInt64 => Kind::Unsigned,
        of if of.is_integer() => Kind::Integer,
        DataType::Float16 | DataType::Float32 => Kind::Single,
        DataType::Float64 => Kind::Real,
        DataType::Decimal32(_, 0)
        | DataType::Decimal64(_, 0)
        | DataType::Decimal128(_, 0)
        | DataType::Decimal256(_, 0) => Kind::Integer,
        of if of.is_decimal() => Kind::Real,
        DataType::Utf8 | DataType::Null => Kind::Text,
        DataType::List(of) => Kind::List(Box::new(kind(of.data_type())?)),
        _ => return None,
    })
}

/// Passes the numbers and booleans of a range, all of which are there. An array of another type has none.
///
/// # Errors
/// The first one of `each`.
pub fn numbers<E>(
    array: &dyn Array,
    mut range: Range<usize>,
    mut each: impl FnMut(Cell) -> Result<(), E>,
) -> Result<(), E> {
    macro_rules! pass {
        ($of:ident, $values:ident, $value:expr) => {{
            let $values = array.as_primitive::<$of>();
            let value = $value;
            range.try_for_each(|at| each(value(at)))
        }};
        ($of:ident, $cell:ident) => {
            pass!($of, values, |at| Cell::$cell(values.value(at).into()))
        };
        ($of:ident) => {
            pass!($of, values, |at| decimal(&values.value_as_string(at)))
        };
    }
    match array.data_type() {
        DataType::Boolean => {
            let flags = array.as_boolean();
            range.try_for_each(|at| each(Cell::Flag(flags.value(at))))
        }
        DataType::Int8 => pass!(Int8Type, Integer),
        DataType::Int16 => pass!(Int16Type, Integer),
        DataType::Int32 => pass!(Int32Type, Integer),
        DataType::Int64 => pass!(Int64Type, Integer),
        DataType::UInt8 => pass!(UInt8Type, Integer),
        DataType::UInt16 => pass!(UInt16Type, Integer),
        DataType::UInt32 => pass!(UInt32Type, Integer),
        DataType::UInt64 => pass!(UInt64Type, values, |at| Cell::of_unsigned(values.value(at))),
        DataType::Float16 => pass!(Float16Type, Single),
        DataType::Float32 => pass!(Float32Type, Single),
        DataType::Float64 => pass!(Float64Type, Real),
        DataType::Decimal32(..) => pass!(Decimal32Type),
        DataType::Decimal64(..) => pass!(Decimal64Type),
        DataType::Decimal128(..) => pass!(Decimal128Type),
        DataType::Decimal256(..) => pass!(Decimal256Type),
        _ => Ok(()),
    }
}

/// The number or boolean at `index`, which is there; [`Cell::Absent`] in an array of another type.
pub fn number(array: &dyn Array, index: usize) -> Cell {
    let mut found = Cell::Absent;
    let read = numbers(array, index..index + 1, |cell| {
        found = cell;
        Ok::<_, std::convert::Infallible>(())
    });
    read.map(|()| found).unwrap_or_default()
}

/// A decimal as an integer of 64 bits if it has no fraction, or as the float64 that is next to it.
fn decimal(text: &str) -> Cell {
    let integer = text.parse().map(Cell::Integer).or_else(|_| text.parse().map(Cell::Unsigned));
    integer.unwrap_or_else(|_| text.parse().map_or(Cell::Absent, Cell::Real))
}

/// The number with these bits of a float16.
pub fn half(bits: u16) -> f32 {
    <Float16Type as ArrowPrimitiveType>::Native::from_bits(bits).to_f32()
}
