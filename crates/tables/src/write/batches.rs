//! Parquet files from arrays of columns.

use std::{fmt, io::Write};

use ::parquet::arrow::ArrowWriter;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::parquet;

/// Writes a Parquet file from arrays of its columns. At most about 8 MiB of a row group are kept in
/// memory.
pub struct BatchWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> BatchWriter<W> {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// Parquet has no form for a type, or the file cannot be written.
    pub fn new(output: W, schema: &SchemaRef) -> Result<Self, String> {
        parquet::writer(output, schema).map(|writer| Self { writer })
    }

    /// Writes rows, whose columns are those of the file.
    ///
    /// # Errors
    /// The columns are others, or the file cannot be written.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        self.writer.write(rows).map_err(|cause| cause.to_string())
    }

    /// Writes what is buffered, and the footer. Returns the output, which is not flushed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<W, String> {
        self.writer.into_inner().map_err(|cause| cause.to_string())
    }
}

impl<W: Write + Send> fmt::Debug for BatchWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").finish_non_exhaustive()
    }
}
