//! Rows of Parquet.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch,
    StringArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};

use super::Output;
use crate::{Cell, Column, Kind};

/// The rows that are encoded at once.
const BATCH: usize = 1024;
/// The rows of a row group, which is kept in memory until it is complete.
const ROW_GROUP: usize = 64 << 10;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Sink {
    writer: ArrowWriter<Output>,
    schema: SchemaRef,
    kinds: Vec<Kind>,
    /// The rows of the next batch.
    rows: Vec<Vec<Cell>>,
}

impl Sink {
    pub(super) fn new(output: Output, columns: Vec<Column>) -> Result<Self, String> {
        let field = |column: &Column| Field::new(&*column.name, data_type(&column.kind), true);
        let schema: SchemaRef = Schema::new(columns.iter().map(field).collect::<Vec<_>>()).into();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .build();
        let writer = ArrowWriter::try_new(output, Arc::clone(&schema), Some(properties));
        let kinds = columns.into_iter().map(|column| column.kind).collect();
        let writer = writer.map_err(|cause| cause.to_string())?;
        Ok(Self { writer, schema, kinds, rows: Vec::new() })
    }

    pub(super) fn write(&mut self, cells: &[Cell]) -> Result<(), String> {
        self.rows.push(cells.to_vec());
        if self.rows.len() < BATCH { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), String> {
        let rows = std::mem::take(&mut self.rows);
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
