//! Rows of Parquet.

use std::{io::Write, sync::Arc};

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch,
    StringArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::{
    arrow::{ArrowSchemaConverter, ArrowWriter},
    basic::{Compression, Type},
    file::properties::WriterProperties,
};

use super::Output;
use crate::{Cell, Column, Kind};

/// The most rows that are encoded at once, and about the most bytes of them in memory.
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
/// The most rows of a row group, which is kept in memory until it is complete, and about the most
/// bytes of it.
const ROW_GROUP_ROWS: usize = 64 << 10;
const ROW_GROUP_BYTES: usize = 8 << 20;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Sink {
    writer: ArrowWriter<Output>,
    schema: SchemaRef,
    kinds: Vec<Kind>,
    /// The rows of the next batch.
    rows: Vec<Vec<Cell>>,
    /// The bytes of these rows in memory.
    bytes: usize,
}

impl Sink {
    pub(super) fn new(output: Output, columns: Vec<Column>) -> Result<Self, String> {
        let field = |column: &Column| Field::new(&*column.name, data_type(&column.kind), true);
        let schema: SchemaRef = Schema::new(columns.iter().map(field).collect::<Vec<_>>()).into();
        let kinds = columns.into_iter().map(|column| column.kind).collect();
        let writer = writer(output, &schema)?;
        Ok(Self { writer, schema, kinds, rows: Vec::new(), bytes: 0 })
    }

    pub(super) fn write(&mut self, cells: &[Cell]) -> Result<(), String> {
        self.rows.push(cells.to_vec());
        self.bytes += cells.iter().map(Cell::bytes).sum::<usize>();
        let is_full = self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES;
        if is_full { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), String> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let column =
            |(index, kind)| array(kind, &rows.iter().map(|row| &row[index]).collect::<Vec<_>>());
        let columns = self.kinds.iter().enumerate().map(column).collect::<Result<_, _>>();
        let batch =
            columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns));
        let batch = batch.map_err(|cause| cause.to_string())?;
        self.writer.write(&batch).map_err(|cause| cause.to_string())
    }

    pub(super) fn finish(mut self) -> Result<Output, String> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        self.writer.into_inner().map_err(|cause| cause.to_string())
    }
}

/// A writer of a file with these columns. Floats have no dictionary: scores hardly repeat, and a
/// dictionary of values that are all different makes a file larger and takes time.
pub(super) fn writer<W: Write + Send>(
    output: W,
    schema: &SchemaRef,
) -> Result<ArrowWriter<W>, String> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES));
    let columns = ArrowSchemaConverter::new().convert(schema).map_err(|cause| cause.to_string())?;
    for column in columns.columns() {
        if matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE) {
            properties = properties.set_column_dictionary_enabled(column.path().clone(), false);
        }
    }
    let writer = ArrowWriter::try_new(output, Arc::clone(schema), Some(properties.build()));
    writer.map_err(|cause| cause.to_string())
}

fn data_type(kind: &Kind) -> DataType {
    match kind {
        Kind::Flag => DataType::Boolean,
        Kind::Integer => DataType::Int64,
        Kind::Unsigned => DataType::UInt64,
        Kind::Single => DataType::Float32,
        Kind::Real => DataType::Float64,
        Kind::Text => DataType::Utf8,
        Kind::List(of) => DataType::new_list(data_type(of), true),
    }
}

/// The values of a column. A cell of another kind has none, except in a column of texts.
fn array(kind: &Kind, cells: &[&Cell]) -> Result<ArrayRef, ArrowError> {
    let cells = cells.iter().copied();
    Ok(match kind {
        Kind::Flag => Arc::new(BooleanArray::from_iter(cells.map(|cell| match cell {
            Cell::Flag(flag) => Some(*flag),
            _ => None,
        }))),
        Kind::Integer => Arc::new(Int64Array::from_iter(cells.map(|cell| match cell {
            Cell::Integer(value) => Some(*value),
            _ => None,
        }))),
        Kind::Unsigned => Arc::new(UInt64Array::from_iter(cells.map(|cell| match cell {
            Cell::Integer(value) => u64::try_from(*value).ok(),
            Cell::Unsigned(value) => Some(*value),
            _ => None,
        }))),
        Kind::Single => Arc::new(Float32Array::from_iter(cells.map(|cell| match cell {
            Cell::Single(value) => Some(*value),
            _ => None,
        }))),
        Kind::Real => Arc::new(Float64Array::from_iter(cells.map(|cell| match cell {
            Cell::Real(value) => Some(*value),
            _ => None,
        }))),
        Kind::Text => Arc::new(StringArray::from_iter(
            cells.map(|cell| (!cell.is_absent()).then(|| cell.to_string())),
        )),
        Kind::List(of) => list(of, &cells.collect::<Vec<_>>())?,
    })
}

fn list(of: &Kind, cells: &[&Cell]) -> Result<ArrayRef, ArrowError> {
    let lists: Vec<Option<&[Cell]>> = cells.iter().copied().map(items).collect();
    let lengths = lists.iter().map(|list| list.map_or(0, <[Cell]>::len));
    let values: Vec<&Cell> = lists.iter().flatten().copied().flatten().collect();
    let field = Arc::new(Field::new_list_field(data_type(of), true));
    let present: NullBuffer = lists.iter().map(Option::is_some).collect();
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(field, offsets, array(of, &values)?, Some(present))?))
}

/// The cells of a list.
fn items(cell: &Cell) -> Option<&[Cell]> {
    match cell {
        Cell::List(cells) => Some(cells),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufWriter;

    use super::*;

    #[test]
    fn floats_have_no_dictionary() {
        let file = BufWriter::new(tempfile::tempfile().expect("a file"));
        let list = Kind::List(Box::new(Kind::Single));
        let kinds = [("a", Kind::Real), ("b", list), ("c", Kind::Text), ("d", Kind::Integer)];
        let columns = kinds.into_iter().map(|(name, kind)| Column::new(name, kind)).collect();
        let mut sink = Sink::new(file, columns).expect("a file");
        let list = Cell::List(vec![Cell::Single(0.5)]);
        let row = [Cell::Real(0.5), list, Cell::Text("t".to_owned()), Cell::Integer(1)];
        sink.write(&row).expect("written");
        sink.flush().expect("written");
        let metadata = sink.writer.close().expect("complete");
        let columns = metadata.row_group(0).columns().iter();
        let have: Vec<_> =
            columns.map(|column| column.dictionary_page_offset().is_some()).collect();
        assert_eq!(have, [false, false, true, true]);
    }

    #[test]
    fn long_rows_are_not_kept_in_memory() {
        const VALUES: usize = 5000;
        let file = BufWriter::new(tempfile::tempfile().expect("a file"));
        let columns = vec![Column::new("score", Kind::List(Box::new(Kind::Single)))];
        let mut sink = Sink::new(file, columns).expect("a file");
        for row in 0..700 {
            let values = (row * VALUES..(row + 1) * VALUES).map(|value| Cell::Single(value as f32));
            sink.write(&[Cell::List(values.collect())]).expect("written");
            assert!(sink.rows.len() < 10, "{} rows wait", sink.rows.len());
            let encoded = sink.writer.in_progress_size();
            assert!(encoded < 2 * ROW_GROUP_BYTES, "{encoded} bytes in the row group");
        }
        assert!(!sink.writer.flushed_row_groups().is_empty());
        sink.finish().expect("complete");
    }
}
