//! Rows of Parquet.

use std::{fs::File, path::Path, sync::Arc};

use arrow_array::{
    Array, RecordBatch,
    cast::AsArray as _,
    types::{
        Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::DataType;
use parquet::arrow::{
    ProjectionMask,
    arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
};

use super::Parsed;
use crate::{Cell, Column, Kind, Names};

/// The most rows that are decoded at once, and about the most bytes.
const BATCH_ROWS: u64 = 1024;
const BATCH_BYTES: u64 = 16 << 20;

/// An open file.
#[derive(Debug)]
pub(super) struct Source {
    batches: ParquetRecordBatchReader,
    columns: Vec<Column>,
    names: Names,
    left_out: Vec<Arc<str>>,
    batch: Option<RecordBatch>,
    /// The next row of the batch.
    next: usize,
    read: u64,
    rows: u64,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|cause| cause.to_string())?;
        // Types that only Arrow has, such as dictionaries, are read as those that they stand for.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options);
        let builder = builder.map_err(|cause| cause.to_string())?;
        let (mut columns, mut roots, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for (root, field) in builder.schema().fields().iter().enumerate() {
            let name: Arc<str> = field.name().as_str().into();
            match kind(field.data_type()) {
                Some(kind) => {
                    columns.push(Column { name, kind });
                    roots.push(root);
                }
                None => left_out.push(name),
            }
        }
        let groups = builder.metadata().row_groups();
        let bytes: u64 = groups.iter().map(|group| group.total_byte_size().unsigned_abs()).sum();
        let rows: u64 = groups.iter().map(|group| group.num_rows().unsigned_abs()).sum();
        let bytes_per_row = (bytes / rows.max(1)).max(1);
        let batch_rows = (BATCH_BYTES / bytes_per_row).clamp(1, BATCH_ROWS) as usize;
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let batches = builder.with_projection(mask).with_batch_size(batch_rows).build();
        Ok(Self {
            batches: batches.map_err(|cause| cause.to_string())?,
            names: columns.iter().map(|column| Arc::clone(&column.name)).collect(),
            columns,
            left_out,
            batch: None,
            next: 0,
            read: 0,
            rows,
        })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn left_out(&self) -> &[Arc<str>] {
        &self.left_out
    }

    pub(super) fn position(&self) -> (u64, u64) {
        (self.read, self.rows)
    }

    /// The next row.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(super) fn read(&mut self) -> Result<Option<Parsed>, String> {
        while self.batch.as_ref().is_none_or(|batch| self.next >= batch.num_rows()) {
            let Some(batch) = self.batches.next() else { return Ok(None) };
            self.batch = Some(batch.map_err(|cause| cause.to_string())?);
            self.next = 0;
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        let cells = batch.columns().iter().map(|column| cell(&**column, self.next)).collect();
        self.next += 1;
        self.read += 1;
        Ok(Some(Ok((Arc::clone(&self.names), cells))))
    }
}

/// The type of a column; `None` if cells have no such type.
fn kind(of: &DataType) -> Option<Kind> {
    Some(match of {
        DataType::Boolean => Kind::Flag,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Kind::Integer,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Kind::Integer,
        DataType::Float32 => Kind::Single,
        DataType::Float64 => Kind::Real,
        DataType::Utf8 => Kind::Text,
        DataType::List(of) => Kind::List(Box::new(kind(of.data_type())?)),
        _ => return None,
    })
}

/// The value at `index` of an array whose type [`kind`] knows.
fn cell(array: &dyn Array, index: usize) -> Cell {
    if array.is_null(index) {
        return Cell::Absent;
    }
    match array.data_type() {
        DataType::Boolean => Cell::Flag(array.as_boolean().value(index)),
        DataType::Int8 => Cell::Integer(array.as_primitive::<Int8Type>().value(index).into()),
        DataType::Int16 => Cell::Integer(array.as_primitive::<Int16Type>().value(index).into()),
        DataType::Int32 => Cell::Integer(array.as_primitive::<Int32Type>().value(index).into()),
        DataType::Int64 => Cell::Integer(array.as_primitive::<Int64Type>().value(index)),
        DataType::UInt8 => Cell::Integer(array.as_primitive::<UInt8Type>().value(index).into()),
        DataType::UInt16 => Cell::Integer(array.as_primitive::<UInt16Type>().value(index).into()),
        DataType::UInt32 => Cell::Integer(array.as_primitive::<UInt32Type>().value(index).into()),
        DataType::UInt64 => {
            let value = array.as_primitive::<UInt64Type>().value(index);
            i64::try_from(value).map_or(Cell::Real(value as f64), Cell::Integer)
        }
        DataType::Float32 => Cell::Single(array.as_primitive::<Float32Type>().value(index)),
        DataType::Float64 => Cell::Real(array.as_primitive::<Float64Type>().value(index)),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(index).to_owned()),
        DataType::List(_) => {
            let values = array.as_list::<i32>().value(index);
            Cell::List((0..values.len()).map(|index| cell(&*values, index)).collect())
        }
        _ => Cell::Absent,
    }
}
