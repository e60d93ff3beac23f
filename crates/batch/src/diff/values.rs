//! The values of a score column, and keys, as they are shown.

use arrow_array::{
    ArrowPrimitiveType,
    temporal_conversions::{
        date32_to_datetime, timestamp_ms_to_datetime, timestamp_ns_to_datetime,
        timestamp_s_to_datetime, timestamp_us_to_datetime,
    },
    types::Float16Type,
};
use arrow_schema::{DataType as ArrowType, Field, TimeUnit};
use outrigger_oip::DataType;
use outrigger_tables::{Kind as ColumnKind, is_json, kind};
use serde_json::{Map, Value, json};

use crate::columns::leaf;

/// A number of two bytes.
type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// The most characters of a value that is shown.
const SHOWN: usize = 200;

/// The kind of the values of a score column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Numbers, or lists of them.
    Number { is_list: bool },
    /// Texts or booleans, which are equal or not.
    Other,
}

impl Kind {
    /// The kind of the values of this type.
    pub(crate) fn of(of: &ArrowType) -> Self {
        let (leaf, is_list) = leaf(of);
        match kind(leaf) {
            None | Some(ColumnKind::Text | ColumnKind::Flag) => Self::Other,
            Some(_) => Self::Number { is_list },
        }
    }

    /// The type in which values are compared.
    pub(crate) fn datatype(self) -> DataType {
        match self {
            Self::Number { .. } => DataType::Fp64,
            Self::Other => DataType::Bytes,
        }
    }

    /// Values as JSON, cut.
    pub(super) fn shown(self, values: Option<&[u8]>) -> Value {
        let Some(values) = values else { return Value::Null };
        match self {
            Self::Number { is_list: false } => number(numbers(values).next().unwrap_or(f64::NAN)),
            Self::Number { is_list: true } => json!(format!("{} values", numbers(values).count())),
            Self::Other => match values {
                [0] => json!(false),
                [1] => json!(true),
                // A text after its length.
                texts => text(texts.get(4..).unwrap_or(texts)),
            },
        }
    }
}

/// The numbers of a score.
pub(super) fn numbers(values: &[u8]) -> impl ExactSizeIterator<Item = f64> + '_ {
    values.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes))
}

/// A number as JSON, which has none that is not finite.
pub(super) fn number(number: f64) -> Value {
    if number.is_finite() { json!(number) } else { json!(number.to_string()) }
}

/// A text as JSON, cut.
fn text(bytes: &[u8]) -> Value {
    json!(String::from_utf8_lossy(bytes).chars().take(SHOWN).collect::<String>())
}

/// Splits the values of the score columns of a row, in their order. An absent one is `None`.
pub(super) fn split(scores: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = scores;
    std::iter::from_fn(move || {
        let (is_there, after) = rest.split_first()?;
        if *is_there == 0 {
            rest = after;
            return Some(None);
        }
        let (length, after) = after.split_first_chunk::<4>()?;
        let (values, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = after;
        Some(Some(values))
    })
}

/// The columns of a key, with their values as JSON.
pub(super) fn key(columns: &[Field], key: &[u8]) -> Map<String, Value> {
    let mut rest = key;
    let value = |field: &Field| {
        let value = match is_json(field) {
            true => json_value(&mut rest),
            false => key_value(field.data_type(), &mut rest),
        };
        (field.name().clone(), value.unwrap_or(Value::Null))
    };
    columns.iter().map(value).collect()
}

/// Takes a value of JSON from the beginning of a key; `None` if it is absent.
fn json_value(rest: &mut &[u8]) -> Option<Value> {
    if take(rest, 1)? == [0] {
        return None;
    }
    let length = take(rest, 8)?.try_into().ok().map(u64::from_le_bytes)?;
    serde_json::from_slice(take(rest, length)?).ok().map(cut)
}

/// The value with its texts cut.
fn cut(value: Value) -> Value {
    match value {
        Value::String(long) => text(long.as_bytes()),
        Value::Array(items) => items.into_iter().map(cut).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (name, cut(value))).collect())
        }
        other => other,
    }
}

/// Takes a value from the beginning of a key; `None` if it is absent.
fn key_value(of: &ArrowType, rest: &mut &[u8]) -> Option<Value> {
    if take(rest, 1)? == [0] {
        return None;
    }
    let mut length = || take(rest, 8)?.try_into().ok().map(u64::from_le_bytes);
    match of {
        ArrowType::Boolean => Some(json!(take(rest, 1)? == [1])),
        ArrowType::Utf8 => {
            let length = length()?;
            Some(text(take(rest, length)?))
        }
        ArrowType::Binary => {
            let length = length()?;
            Some(hexadecimal(take(rest, length)?))
        }
        ArrowType::FixedSizeBinary(length) => {
            Some(hexadecimal(take(rest, u64::try_from(*length).ok()?)?))
        }
        ArrowType::List(item) => {
            let items = length()?;
            let items = (0..items).map(|_| key_value(item.data_type(), rest));
            Some(items.map(Option::unwrap_or_default).collect())
        }
        ArrowType::Struct(members) => {
            let members = members.iter();
            let member = members.map(|it| (it.name().clone(), key_value(it.data_type(), rest)));
            let members = member.map(|(name, value)| (name, value.unwrap_or_default()));
            Some(Value::Object(members.collect()))
        }
        other => Some(fixed(other, take(rest, other.primitive_width()? as u64)?)),
    }
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(taken)
}

fn hexadecimal(bytes: &[u8]) -> Value {
    let digits = bytes.iter().take(SHOWN / 2).map(|byte| format!("{byte:02x}"));
    json!(digits.collect::<String>())
}

/// A value of a fixed size.
fn fixed(of: &ArrowType, bytes: &[u8]) -> Value {
    macro_rules! as_number {
        ($($arrow:ident: $native:ty),*) => {
            match of {
                $(ArrowType::$arrow => {
                    let value = bytes.try_into().map(<$native>::from_le_bytes);
                    value.map_or(Value::Null, |value| json!(value))
                })*
                ArrowType::Float16 => {
                    let value = bytes.try_into();
                    let value = value.map(Half::from_le_bytes);
                    value.map_or(Value::Null, |value| number(value.into()))
                }
                ArrowType::Date32 => time(bytes, |days| {
                    let day = date32_to_datetime(i32::try_from(days).ok()?)?;
                    Some(day.date().to_string())
                }),
                ArrowType::Timestamp(unit, _) => time(bytes, |time| {
                    let time = match unit {
                        TimeUnit::Second => timestamp_s_to_datetime(time),
                        TimeUnit::Millisecond => timestamp_ms_to_datetime(time),
                        TimeUnit::Microsecond => timestamp_us_to_datetime(time),
                        TimeUnit::Nanosecond => timestamp_ns_to_datetime(time),
                    };
                    time.map(|time| time.to_string())
                }),
                _ => hexadecimal(bytes),
            }
        };
    }
    as_number!(
        Int8: i8, Int16: i16, Int32: i32, Int64: i64,
        UInt8: u8, UInt16: u16, UInt32: u32, UInt64: u64,
        Float32: f32, Float64: f64
    )
}

/// A time that `shown` writes, or its number if it is out of range.
fn time(bytes: &[u8], shown: impl FnOnce(i64) -> Option<String>) -> Value {
    let value = match bytes.len() {
        4 => bytes.try_into().map(|bytes| i32::from_le_bytes(bytes).into()),
        _ => bytes.try_into().map(i64::from_le_bytes),
    };
    let Ok(value) = value else { return Value::Null };
    shown(value).map_or_else(|| json!(value), |text| json!(text))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, Date32Array, Float16Array, Int64Array, RecordBatch, StringArray, StructArray,
        TimestampMicrosecondArray,
    };

    use super::*;
    use crate::diff::layout::Columns;

    #[test]
    fn a_key_is_shown_as_it_was() {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None]));
        let members = vec![(Arc::new(Field::new("id", ArrowType::Int64, true)), Arc::clone(&ids))];
        let table = RecordBatch::try_from_iter([
            ("id", Arc::clone(&ids)),
            ("text", Arc::new(StringArray::from(vec!["数", "b"]))),
            ("day", Arc::new(Date32Array::from(vec![1, 2]))),
            ("time", Arc::new(TimestampMicrosecondArray::from(vec![1_500_000, 0]))),
            ("half", Arc::new(Float16Array::from_iter_values([Default::default(); 2]))),
            ("pair", Arc::new(StructArray::from(members))),
        ]);
        let table = table.expect("a table");
        let schema = table.schema();
        let types: Vec<_> = schema.fields().iter().map(|it| Field::clone(it)).collect();
        let keys = types.iter().map(|field| field.name().clone()).collect();
        let rows = Columns { keys, scores: Vec::new() }.rows(&table).expect("rows");
        let shown = Value::Object(key(&types, &rows[0].key));
        let expected = json!({
            "id": -7, "text": "数", "day": "1970-01-02", "time": "1970-01-01 00:00:01.500",
            "half": 0.0, "pair": {"id": -7},
        });
        assert_eq!(shown, expected);
        assert_eq!(key(&types, &rows[1].key)["id"], Value::Null);
    }

    #[test]
    fn scores_are_split_as_they_were_joined() {
        let scores = [0, 1, 2, 0, 0, 0, 7, 8, 1, 0, 0, 0, 0];
        let split: Vec<_> = split(&scores).collect();
        assert_eq!(split, [None, Some(&[7, 8][..]), Some(&[][..])]);
    }
}
