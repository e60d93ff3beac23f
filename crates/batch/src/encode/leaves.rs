//! The values of a column, without the lists around them.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, GenericByteArray, cast::AsArray as _, types::ByteArrayType};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType as ArrowType;
use bytes::{BufMut as _, BytesMut};
use outrigger_oip::DataType;
use outrigger_tables::{Cell, kind, number, numbers};

use crate::columns::arrow_type;

/// A column: its values in one array, and those of each row.
pub(crate) struct Leaves<'a> {
    values: &'a dyn Array,
    /// The values of a type with a fixed number of bytes, and that number.
    fixed: Option<(Buffer, usize)>,
    /// The values that are absent, if any is.
    absent: Option<NullBuffer>,
    /// The lists around a value, outermost first.
    lists: Vec<&'a arrow_array::ListArray>,
}

/// The reason why values were not written.
type Put = Result<(), String>;

const ABSENT: &str = "a value is absent";

impl<'a> Leaves<'a> {
    pub(crate) fn of(column: &'a ArrayRef) -> Self {
        let (mut values, mut lists): (&'a dyn Array, _) = (&**column, Vec::new());
        while let Some(list) = values.as_list_opt::<i32>() {
            lists.push(list);
            values = &**list.values();
        }
        let fixed = values.data_type().primitive_width().and_then(|width| {
            let data = values.to_data();
            Some((data.buffers().first()?.slice(data.offset() * width), width))
        });
        Self { values, fixed, absent: values.logical_nulls(), lists }
    }

    fn is_null(&self, at: usize) -> bool {
        self.absent.as_ref().is_some_and(|absent| absent.is_null(at))
    }

    /// True if the row has no value or list at all.
    pub(super) fn is_absent(&self, row: usize) -> bool {
        self.lists.first().map_or_else(|| self.is_null(row), |list| list.is_null(row))
    }

    /// True if the value of the row is NaN.
    pub(super) fn is_nan(&self, row: usize) -> bool {
        let is_float = self.lists.is_empty() && self.values.data_type().is_floating();
        is_float && number(self.values, row).real().is_some_and(f64::is_nan)
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
        if range.clone().any(|at| self.is_null(at)) {
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
        match (values.data_type(), &self.fixed) {
            (ArrowType::Utf8, _) => put_texts(values.as_string::<i32>(), range, data),
            (ArrowType::Binary, _) => put_texts(values.as_binary::<i32>(), range, data),
            (of, Some((bytes, width))) if *of == arrow_type(datatype) => {
                data.extend_from_slice(&bytes[range.start * width..range.end * width]);
                Ok(())
            }
            (of, _) if kind(of).is_none() => Err(format!("{of} has no form in the protocol")),
            _ => numbers(values, range, |number| put_number(&number, datatype, data)),
        }
    }
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

/// Appends a number or a boolean: as the float next to it, or as the integer that it is exactly.
fn put_number(number: &Cell, datatype: DataType, data: &mut BytesMut) -> Put {
    let none = || format!("{number} is not a value of {datatype}");
    match (datatype, number) {
        (DataType::Fp32, _) => data.put_f32_le(number.single().ok_or_else(none)?),
        (DataType::Fp64, _) => data.put_f64_le(number.real().ok_or_else(none)?),
        // A comparison reads booleans as bytes.
        (DataType::Bytes, Cell::Flag(flag)) => data.put_u8(u8::from(*flag)),
        _ => {
            let integer = number.integer();
            let integer = integer.ok_or_else(|| format!("{number} is not exactly an integer"))?;
            put_integer(integer, datatype, data)?;
        }
    }
    Ok(())
}

fn put_integer(value: i128, datatype: DataType, data: &mut BytesMut) -> Put {
    let refused = |_| format!("{value} is out of the range of {datatype}");
    match datatype {
        DataType::Bool if matches!(value, 0 | 1) => data.put_u8(value as u8),
        DataType::Bool => return Err(format!("{value} is not 0 or 1")),
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
