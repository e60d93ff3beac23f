//! The keys and scores of rows as bytes, which are compared, hashed and kept in files.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray as _};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType as ArrowType, Schema};
use bytes::BytesMut;
use outrigger_oip::DataType;
use outrigger_tables::{LineWriter, is_json, json_texts};

use super::values::Kind;
use crate::{Error, encode::Leaves};

/// A row of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The values of the key columns. Equal keys are equal bytes.
    pub(crate) key: Box<[u8]>,
    /// The values of the score columns.
    pub(crate) scores: Box<[u8]>,
}

/// The columns of an output that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) keys: Vec<String>,
    pub(crate) scores: Vec<(String, Kind)>,
}

impl Columns {
    /// The names of all columns.
    pub(crate) fn names(&self) -> Vec<String> {
        let scores = self.scores.iter().map(|(name, _)| name);
        self.keys.iter().chain(scores).cloned().collect()
    }

    /// The rows of a table that has the columns.
    ///
    /// # Errors
    /// It does not have one, or a value is too large.
    pub(crate) fn rows(&self, table: &RecordBatch) -> Result<Vec<Row>, Error> {
        let keys = self.keys.iter().map(|name| Ok(KeyColumn::of(column(table, name)?)));
        let keys = keys.collect::<Result<Vec<_>, Error>>()?;
        let scores = self.scores.iter();
        let scores =
            scores.map(|(name, kind)| Ok((Leaves::of(column(table, name)?), kind.datatype())));
        let scores = scores.collect::<Result<Vec<_>, Error>>()?;
        let row = |row| {
            let (mut key, mut values) = (Vec::new(), BytesMut::new());
            keys.iter().for_each(|column| column.put(row, &mut key));
            for (leaves, datatype) in &scores {
                put_score(leaves, row, *datatype, &mut values)?;
            }
            Ok(Row { key: key.into(), scores: values.to_vec().into() })
        };
        (0..table.num_rows()).map(row).collect()
    }
}

fn column<'a>(table: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, Error> {
    let found = table.column_by_name(name);
    found.ok_or_else(|| Error::failed(format!("a file has no column {name:?}")))
}

/// Appends the values of a score: 0 for an absent one, else 1, the number of bytes, and the bytes.
/// A list with an absent value counts as absent.
fn put_score(
    leaves: &Leaves<'_>,
    row: usize,
    datatype: DataType,
    out: &mut BytesMut,
) -> Result<(), Error> {
    let Ok(range) = leaves.range(row) else {
        out.extend_from_slice(&[0]);
        return Ok(());
    };
    out.extend_from_slice(&[1, 0, 0, 0, 0]);
    let start = out.len();
    leaves.put(range, datatype, out).map_err(Error::failed)?;
    let length = u32::try_from(out.len() - start).map_err(|_| Error::failed(TOO_LARGE))?;
    out[start - 4..start].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

const TOO_LARGE: &str = "a value takes more than 4 GiB";

/// A column whose values are parts of keys.
struct KeyColumn {
    absent: Option<NullBuffer>,
    values: KeyValues,
}

enum KeyValues {
    /// Values of this number of bytes, one after the other.
    Fixed(Buffer, usize),
    Other(ArrayRef),
}

impl KeyColumn {
    /// A column of a type for which [`is_key`] is true.
    fn of(column: &ArrayRef) -> Self {
        let values = match column.data_type().primitive_width() {
            Some(width) => {
                let data = column.to_data();
                let start = data.offset() * width;
                let values = data.buffers().first().map(|it| it.slice(start));
                KeyValues::Fixed(values.unwrap_or_default(), width)
            }
            None => KeyValues::Other(ArrayRef::clone(column)),
        };
        Self { absent: column.nulls().cloned(), values }
    }

    /// Appends the value of a row: 0 for an absent one, else 1 and the value. Values of a varying
    /// size come after their number of bytes or items.
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        if self.absent.as_ref().is_some_and(|absent| absent.is_null(row)) {
            return out.push(0);
        }
        out.push(1);
        let column = match &self.values {
            KeyValues::Fixed(values, width) => {
                return out.extend_from_slice(&values[row * width..(row + 1) * width]);
            }
            KeyValues::Other(column) => column,
        };
        match column.data_type() {
            ArrowType::Boolean => out.push(column.as_boolean().value(row).into()),
            ArrowType::Utf8 => put_bytes(column.as_string::<i32>().value(row).as_bytes(), out),
            ArrowType::Binary => put_bytes(column.as_binary::<i32>().value(row), out),
            ArrowType::FixedSizeBinary(_) => {
                out.extend_from_slice(column.as_fixed_size_binary().value(row));
            }
            ArrowType::List(_) => {
                let items = column.as_list::<i32>().value(row);
                out.extend_from_slice(&(items.len() as u64).to_le_bytes());
                let items_of = Self::of(&items);
                (0..items.len()).for_each(|item| items_of.put(item, out));
            }
            ArrowType::Struct(_) => {
                let members = column.as_struct().columns().iter();
                members.for_each(|member| Self::of(member).put(row, out));
            }
            // `is_key` has refused it.
            _ => {}
        }
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// True if values of this type can be parts of keys.
fn is_key(of: &ArrowType) -> bool {
    match of {
        ArrowType::Boolean
        | ArrowType::Utf8
        | ArrowType::Binary
        | ArrowType::FixedSizeBinary(_) => true,
        ArrowType::List(item) => is_key(item.data_type()),
        ArrowType::Struct(members) => members.iter().all(|member| is_key(member.data_type())),
        other => other.primitive_width().is_some(),
    }
}

/// The type of a column that is to be a part of the key.
///
/// # Errors
/// There is no such column, or its type cannot be one.
pub(super) fn key_type<'a>(schema: &'a Schema, name: &str) -> Result<&'a ArrowType, String> {
    let Ok(field) = schema.field_with_name(name) else {
        return Err(format!("there is no column {name:?}"));
    };
    match is_key(field.data_type()) {
        true => Ok(field.data_type()),
        false => Err(format!("the column {name:?} of {} cannot be a key", field.data_type())),
    }
}

/// The type of a column that is to be a part of the key as JSON.
///
/// # Errors
/// There is no such column, or its type has no form in JSON.
pub(super) fn json_type<'a>(schema: &'a Schema, name: &str) -> Result<&'a ArrowType, String> {
    let Ok(field) = schema.field_with_name(name) else {
        return Err(format!("there is no column {name:?}"));
    };
    LineWriter::<Vec<u8>>::check(&Schema::new(vec![field.clone()]))?;
    Ok(field.data_type())
}

/// The table with the values of these columns as JSON.
///
/// # Errors
/// JSON has no form for a type.
pub(super) fn with_json(table: &RecordBatch, names: &[String]) -> Result<RecordBatch, Error> {
    let schema = table.schema();
    let columns = schema.fields().iter().zip(table.columns()).map(|(field, values)| {
        let values: ArrayRef = match names.contains(field.name()) && !is_json(field) {
            true => Arc::new(json_texts(field, values).map_err(Error::failed)?),
            false => ArrayRef::clone(values),
        };
        Ok((field.name(), values, true))
    });
    let columns = columns.collect::<Result<Vec<_>, Error>>()?;
    RecordBatch::try_from_iter_with_nullable(columns).map_err(Error::failed)
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        BooleanArray, Int32Array, Int64Array, ListArray, StringArray, types::Int64Type,
    };

    use super::*;

    fn rows(keys: Vec<(&str, ArrayRef)>) -> Vec<Row> {
        let table = RecordBatch::try_from_iter(keys).expect("a table");
        let names = table.schema().fields().iter().map(|it| it.name().clone()).collect();
        Columns { keys: names, scores: Vec::new() }.rows(&table).expect("rows")
    }

    #[test]
    fn equal_keys_and_no_others_are_equal_bytes() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("a"), Some("a"), Some(""), None]));
        let more: ArrayRef = Arc::new(StringArray::from(vec!["b", "b", "a", "a"]));
        let found = rows(vec![("k", texts), ("l", more)]);
        assert_eq!(found[0], found[1]);
        assert_ne!(found[2], found[3], "an absent text is not an empty one");
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 1]));
        let found = rows(vec![("k", numbers.slice(1, 2))]);
        assert_ne!(found[0], found[1], "a part of a column has its own values");
    }

    #[test]
    fn lists_are_keys() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1)]),
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1), None]),
        ]);
        let found = rows(vec![("k", Arc::new(lists))]);
        assert_eq!(found[0], found[2]);
        assert!(found[0] != found[1] && found[0] != found[3]);
    }

    #[test]
    fn numbers_of_all_sizes_become_doubles() {
        let table = RecordBatch::try_from_iter([
            ("i", Arc::new(Int32Array::from(vec![Some(3), None])) as ArrayRef),
            ("b", Arc::new(BooleanArray::from(vec![true, false]))),
        ]);
        let scores =
            vec![("i".to_owned(), Kind::Number { is_list: false }), ("b".to_owned(), Kind::Other)];
        let columns = Columns { keys: Vec::new(), scores };
        let rows = columns.rows(&table.expect("a table")).expect("rows");
        let expected = [&[1, 8, 0, 0, 0][..], &3_f64.to_le_bytes(), &[1, 1, 0, 0, 0, 1]].concat();
        assert_eq!(&rows[0].scores[..], expected);
        assert_eq!(&rows[1].scores[..], [0, 1, 1, 0, 0, 0, 0]);
    }
}
