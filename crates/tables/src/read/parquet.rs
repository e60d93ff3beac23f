//! Rows of Parquet.

mod budget;
mod compact;
mod delta;
mod footer;
mod header;
mod levels;
mod pages;
pub(crate) mod ranges;
mod rows;

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    slice,
    sync::Arc,
};

use arrow_array::{Array, RecordBatch, cast::AsArray as _};
use arrow_schema::{DataType, Field};
use parquet::file::{
    metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData},
    reader::{ChunkReader as _, Length as _},
};

use self::{
    budget::Budget,
    pages::Pages,
    ranges::{Batches, Table},
};
use super::{Parsed, Row, blob::Blob};
use crate::{
    Cell, Column, LeftOut, Limits, Names,
    arrays::{kind, number},
    cell::repeated,
    error::Cause,
};

/// The most rows that are decoded at once, and about the most bytes.
const BATCH_ROWS: u64 = 1024;
const BATCH_BYTES: u64 = 16 << 20;
/// The footer may take this part of the memory for pages.
const FOOTER: u64 = 16;
/// The end of a file: the length of its footer, and four letters.
const END: u64 = 8;
/// The letters at the end of a file whose footer is not encrypted.
const MAGIC: &[u8] = b"PAR1";

/// An open file.
#[derive(Debug)]
pub(super) struct Source {
    batches: Batches,
    columns: Vec<Column>,
    names: Names,
    left_out: Vec<LeftOut>,
    batch: Option<RecordBatch>,
    /// The next row of the batch.
    next: usize,
    read: u64,
    rows: u64,
    /// The most bytes of a row in memory.
    most: usize,
}

impl Source {
    /// Reads the footer of a file.
    pub(super) fn new(file: File, limits: &Limits) -> Result<Self, Cause> {
        unless_damaged(|| Self::open(file, limits))
    }

    fn open(file: File, limits: &Limits) -> Result<Self, Cause> {
        let table = Table::of(file.into(), Path::new(""), *limits)?;
        let (mut columns, mut roots, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for (root, field) in table.schema().fields().iter().enumerate() {
            let name: Arc<str> = field.name().as_str().into();
            match kind(field.data_type()) {
                Some(kind) => {
                    columns.push(Column { name, kind });
                    roots.push(root);
                }
                None => left_out.push(LeftOut { name, of: field.data_type().to_string() }),
            }
        }
        if let Some(name) = repeated(columns.iter().map(|column| &*column.name)) {
            return Err(Cause::of(format_args!("there are two columns {name:?}")));
        }
        let viewed = table.schema().fields().iter().map(|field| viewed(field)).collect();
        let rows = table.rows();
        Ok(Self {
            batches: table.decoded(slice::from_ref(&(0..rows)), roots, Some(&viewed))?,
            names: columns.iter().map(|column| Arc::clone(&column.name)).collect(),
            columns,
            left_out,
            batch: None,
            next: 0,
            read: 0,
            rows,
            most: limits.parsed(),
        })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    pub(super) fn position(&self) -> (u64, u64) {
        (self.read, self.rows)
    }

    /// The next row, which is written to `row`.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(super) fn read(&mut self, row: &mut Row) -> Result<Option<Parsed>, Cause> {
        while self.batch.as_ref().is_none_or(|batch| self.next == batch.num_rows()) {
            self.batch = None;
            self.batch = self.batches.decode()?;
            self.next = 0;
            if self.batch.is_none() {
                return Ok(None);
            }
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        let (index, mut left) = (self.next, self.most);
        self.next += 1;
        self.read += 1;
        row.names = Arc::clone(&self.names);
        row.cells.clear();
        for column in batch.columns() {
            let Some(cell) = cell(&**column, index, &mut left) else {
                let message = format!("a row takes more than {} bytes of memory", self.most);
                return Ok(Some(Err(message)));
            };
            row.cells.push(cell);
        }
        Ok(Some(Ok(())))
    }
}

/// The result of `work` with the library, which panics where a damaged file breaks its assumptions.
/// Nothing of the file is used any further then.
fn unless_damaged<T>(work: impl FnOnce() -> Result<T, Cause>) -> Result<T, Cause> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_panic| Err(Cause::of("the file is damaged")))
}

/// Refuses a footer that takes too much memory or has too deep a schema. A file without one is refused
/// later.
fn check_footer(file: &Blob, limits: &Limits) -> Result<(), Cause> {
    let Some(start) = file.len().checked_sub(END) else { return Ok(()) };
    let end = file.get_bytes(start, END as usize).map_err(|error| Cause::of_parquet(&error))?;
    let length = u32::from_le_bytes([end[0], end[1], end[2], end[3]]);
    let most = limits.pages / FOOTER;
    if u64::from(length) > most {
        return Err(Cause::too_large(format_args!(
            "its footer has {length} bytes, more than {most}"
        )));
    }
    match start.checked_sub(length.into()) {
        Some(start) if end[4..] == *MAGIC => {
            let footer = file.get_bytes(start, length as usize);
            let footer = footer.map_err(|error| Cause::of_parquet(&error))?;
            footer::check(&footer[..])
                .map_err(|error| Cause::of(format_args!("its footer: {error}")))
        }
        _ => Ok(()),
    }
}

fn count(metadata: &ParquetMetaData) -> u64 {
    let rows = metadata.row_groups().iter().map(RowGroupMetaData::num_rows);
    rows.fold(0, |sum, rows| sum.saturating_add(rows.unsigned_abs()))
}

/// The number of rows that are decoded at once.
fn batch_rows(metadata: &ParquetMetaData, limits: &Limits) -> usize {
    let bytes = metadata.row_groups().iter().map(RowGroupMetaData::total_byte_size);
    let bytes = bytes.fold(0_u64, |sum, bytes| sum.saturating_add(bytes.unsigned_abs()));
    let per_row = (bytes / count(metadata).max(1)).max(1);
    // A dictionary makes values of lists small, but not their decoded form.
    let values = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let values =
        values.fold(0_u64, |sum, chunk| sum.saturating_add(chunk.num_values().unsigned_abs()));
    let decoded = (values / count(metadata).max(1)).saturating_mul(budget::VALUE).max(1);
    // Nor the texts that are copied from it.
    let chunks = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let texts = chunks.filter_map(ColumnChunkMetaData::unencoded_byte_array_data_bytes);
    let texts = texts.fold(0_u64, |sum, bytes| sum.saturating_add(bytes.unsigned_abs()));
    let texts = texts / count(metadata).max(1);
    let room = BATCH_BYTES.min(limits.pages / 4);
    (room / per_row.max(decoded).max(texts)).clamp(1, BATCH_ROWS) as usize
}

fn cause(error: impl std::fmt::Display, budget: &Budget) -> Cause {
    if budget.is_exceeded() { Cause::too_large(error) } else { Cause::of(error) }
}

/// The field with texts that are parts of their pages: those of a dictionary are not repeated.
fn viewed(field: &Field) -> Field {
    let of = match field.data_type() {
        DataType::Utf8 => DataType::Utf8View,
        DataType::List(of) => DataType::List(Arc::new(viewed(of))),
        other => other.clone(),
    };
    field.clone().with_data_type(of)
}

/// The value at `index` of an array whose type [`kind`] knows; `None` if it takes more than `left`
/// bytes, from which its own are taken.
fn cell(array: &dyn Array, index: usize, left: &mut usize) -> Option<Cell> {
    *left = left.checked_sub(size_of::<Cell>())?;
    if array.is_null(index) {
        return Some(Cell::Absent);
    }
    Some(match array.data_type() {
        DataType::Utf8View => {
            let text = array.as_string_view().value(index);
            *left = left.checked_sub(text.len())?;
            Cell::Text(text.to_owned())
        }
        DataType::List(_) => {
            let values = array.as_list::<i32>().value(index);
            // Before the list is allocated.
            left.checked_sub(values.len().checked_mul(size_of::<Cell>())?)?;
            let cells = (0..values.len()).map(|index| cell(&*values, index, left));
            Cell::List(cells.collect::<Option<_>>()?)
        }
        _ => number(array, index),
    })
}
