//! The values of a column, without the lists around them.

use std::{num::ParseFloatError, ops::Range};

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, GenericByteArray, PrimitiveArray,
    cast::AsArray as _,
    types::{
        ByteArrayType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::ToByteSlice as _;
use arrow_schema::DataType as ArrowType;
use bytes::{BufMut as _, BytesMut};
use outrigger_oip::DataType;

use crate::columns::arrow_type;

/// A column: its values in one array, and those of each row.
pub(crate) struct Leaves<'a> {
    values: &'a dyn Array,
    /// The lists around a value, outermost first.
    lists: Vec<&'a arrow_array::ListArray>,
}

/// The reason why values were not written.
type Put = Result<(), String>;

/// The bound below which an integer in a float is exact.
const EXACT: f64 = (1_u64 << 53) as f64;
const ABSENT: &str = "a value is absent";

impl<'a> Leaves<'a> {
    pub(crate) fn of(column: &'a ArrayRef) -> Self {
        let (mut values, mut lists): (&'a dyn Array, _) = (&**column, Vec::new());
        while let Some(list) = values.as_list_opt::<i32>() {
            lists.push(list);
            values = &**list.values();
        }
        Self { values, lists }
    }

    /// True if the row has no value or list at all.
    pub(super) fn is_absent(&self, row: usize) -> bool {
        self.lists.first().map_or_else(|| self.values.is_null(row), |list| list.is_null(row))
    }

    /// True if the value of the row is NaN.
    pub(super) fn is_nan(&self, row: usize) -> bool {
        match self.values.data_type() {
            _ if !self.lists.is_empty() => false,
            ArrowType::Float32 => self.values.as_primitive::<Float32Type>().value(row).is_nan(),
            ArrowType::Float64 => self.values.as_primitive::<Float64Type>().value(row).is_nan(),
            _ => false,
        }
    }

    /// The values of a row.
    ///
    /// # Errors
    /// One is absent.
    pub(crate) fn range(&self, row: usize) -> Result<Range<usize>, String> {
        let mut range = row..row + 1;
        for list in &self.lists {
            if range.clone().any(|at| list.is_null(at)) {
                return Err(ABSENT.to_owned());
            }
            let offsets = list.value_offsets();
            let offset = |at: usize| usize::try_from(offsets[at]).unwrap_or_default();
            range = offset(range.start)..offset(range.end);
        }
        if self.values.null_count() > 0 && range.clone().any(|at| self.values.is_null(at)) {
            return Err(ABSENT.to_owned());
        }
        Ok(range)
    }

    /// Appends values as elements of a tensor.
    ///
    /// # Errors
    /// The type cannot hold one of them.
    pub(crate) fn put(&self, range: Range<usize>, datatype: DataType, data: &mut BytesMut) -> Put {
        let values = self.values;
        match values.data_type() {
            ArrowType::Utf8 => put_texts(values.as_string::<i32>(), range, data),
            ArrowType::Binary => put_texts(values.as_binary::<i32>(), range, data),
            ArrowType::Boolean => put_flags(values.as_boolean(), range, datatype, data),
            ArrowType::Decimal32(..) => {
                put_decimals::<Decimal32Type>(values, range, datatype, data)
            }
            ArrowType::Decimal64(..) => {
                put_decimals::<Decimal64Type>(values, range, datatype, data)
            }
            ArrowType::Decimal128(..) => {
                put_decimals::<Decimal128Type>(values, range, datatype, data)
            }
            ArrowType::Decimal256(..) => {
                put_decimals::<Decimal256Type>(values, range, datatype, data)
            }
            ArrowType::Float16 => put_floats::<Float16Type>(values, range, datatype, data),
            ArrowType::Float32 => put_floats::<Float32Type>(values, range, datatype, data),
            ArrowType::Float64 => put_floats::<Float64Type>(values, range, datatype, data),
            ArrowType::Int8 => put_integers::<Int8Type>(values, range, datatype, data),
            ArrowType::Int16 => put_integers::<Int16Type>(values, range, datatype, data),
            ArrowType::Int32 => put_integers::<Int32Type>(values, range, datatype, data),
            ArrowType::Int64 => put_integers::<Int64Type>(values, range, datatype, data),
            ArrowType::UInt8 => put_integers::<UInt8Type>(values, range, datatype, data),
            ArrowType::UInt16 => put_integers::<UInt16Type>(values, range, datatype, data),
            ArrowType::UInt32 => put_integers::<UInt32Type>(values, range, datatype, data),
            ArrowType::UInt64 => put_integers::<UInt64Type>(values, range, datatype, data),
            other => Err(format!("{other} has no form in the protocol")),
        }
    }
}

/// Appends values whose type is that of the tensor.
fn copy<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    range: Range<usize>,
    data: &mut BytesMut,
) -> Put {
    data.extend_from_slice(values.values()[range].to_byte_slice());
    Ok(())
}

fn put_flags(
    values: &BooleanArray,
    mut range: Range<usize>,
    datatype: DataType,
    data: &mut BytesMut,
) -> Put {
    // A comparison reads booleans as bytes.
    let datatype = if datatype == DataType::Bytes { DataType::Bool } else { datatype };
    range.try_for_each(|at| put_integer(values.value(at).into(), datatype, data))
}

/// Appends decimals as the floats that are next to them, or as integers that they are exactly.
fn put_decimals<T: DecimalType>(
    values: &dyn Array,
    mut range: Range<usize>,
    datatype: DataType,
    data: &mut BytesMut,
) -> Put {
    let values = values.as_primitive::<T>();
    range.try_for_each(|at| {
        let text = values.value_as_string(at);
        let refused = |error: ParseFloatError| format!("{text}: {error}");
        match datatype {
            DataType::Fp32 => data.put_f32_le(text.parse().map_err(refused)?),
            DataType::Fp64 => data.put_f64_le(text.parse().map_err(refused)?),
            _ => match text.parse() {
                Ok(integer) => return put_integer(integer, datatype, data),
                Err(_) => {
                    return put_integer(whole(text.parse().map_err(refused)?)?, datatype, data);
                }
            },
        }
        Ok(())
    })
}

/// Appends texts, each after its length.
fn put_texts<T: ByteArrayType>(
    values: &GenericByteArray<T>,
    range: Range<usize>,
    data: &mut BytesMut,
) -> Put {
    for at in range {
        let text: &[u8] = values.value(at).as_ref();
        let length = u32::try_from(text.len()).map_err(|_| "a text is too long".to_owned())?;
        data.put_u32_le(length);
        data.extend_from_slice(text);
    }
    Ok(())
}

/// Appends numbers, rounded to the size of the tensor's.
fn put_floats<T: ArrowPrimitiveType<Native: Into<f64>>>(
    values: &dyn Array,
    range: Range<usize>,
    datatype: DataType,
    data: &mut BytesMut,
) -> Put {
    let values = values.as_primitive::<T>();
    if arrow_type(datatype) == T::DATA_TYPE {
        return copy(values, range, data);
    }
    let mut values = values.values()[range].iter().map(|value| -> f64 { (*value).into() });
    match datatype {
        DataType::Fp32 => values.for_each(|value| data.put_f32_le(value as f32)),
        DataType::Fp64 => values.for_each(|value| data.put_f64_le(value)),
        _ => return values.try_for_each(|value| put_integer(whole(value)?, datatype, data)),
    }
    Ok(())
}

/// The integer that a float is exactly.
fn whole(value: f64) -> Result<i128, String> {
    match value.fract() == 0.0 && value.abs() < EXACT {
        true => Ok(value as i128),
        false => Err(format!("{value} is not exactly an integer")),
    }
}

/// Appends integers, as integers of another size or as floats.
fn put_integers<T: ArrowPrimitiveType<Native: Into<i128>>>(
    values: &dyn Array,
    range: Range<usize>,
    datatype: DataType,
    data: &mut BytesMut,
) -> Put {
    let values = values.as_primitive::<T>();
    if arrow_type(datatype) == T::DATA_TYPE {
        return copy(values, range, data);
    }
    let values = &values.values()[range];
    values.iter().try_for_each(|value| put_integer((*value).into(), datatype, data))
}

fn put_integer(value: i128, datatype: DataType, data: &mut BytesMut) -> Put {
    let refused = |_| format!("{value} is out of the range of {datatype}");
    match datatype {
        DataType::Bool if matches!(value, 0 | 1) => data.put_u8(value as u8),
        DataType::Bool => return Err(format!("{value} is not 0 or 1")),
        DataType::Fp32 => data.put_f32_le(value as f32),
        DataType::Fp64 => data.put_f64_le(value as f64),
        DataType::Int8 => data.put_i8(value.try_into().map_err(refused)?),
        DataType::Int16 => data.put_i16_le(value.try_into().map_err(refused)?),
        DataType::Int32 => data.put_i32_le(value.try_into().map_err(refused)?),
        DataType::Int64 => data.put_i64_le(value.try_into().map_err(refused)?),
        DataType::Uint8 => data.put_u8(value.try_into().map_err(refused)?),
        DataType::Uint16 => data.put_u16_le(value.try_into().map_err(refused)?),
        DataType::Uint32 => data.put_u32_le(value.try_into().map_err(refused)?),
        DataType::Uint64 => data.put_u64_le(value.try_into().map_err(refused)?),
        other => return Err(format!("an integer is not a value of {other}")),
    }
    Ok(())
}
