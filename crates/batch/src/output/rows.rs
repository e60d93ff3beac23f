//! The file of a chunk's rows.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use outrigger_tables::{BatchWriter, Format, LineWriter};

use super::hashed::Hashed;
use crate::store::NewObject;

type Object = Hashed<NewObject>;

/// A file of rows while it is written.
#[derive(Debug)]
pub(super) enum RowFile {
    Parquet(Box<BatchWriter<Object>>),
    Jsonl(Box<LineWriter<Object>>),
}

impl RowFile {
    /// Begins a file with these columns.
    ///
    /// # Errors
    /// The format has no form for a type, or the file cannot be written.
    pub(super) fn new(format: Format, object: Object, schema: &SchemaRef) -> Result<Self, String> {
        match format {
            Format::Parquet => BatchWriter::new(object, schema).map(|it| Self::Parquet(it.into())),
            Format::Jsonl => LineWriter::new(object, schema).map(|it| Self::Jsonl(it.into())),
            Format::Csv => Err("CSV is no format of the output".to_owned()),
        }
    }

    /// Writes rows, whose columns are those of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<(), String> {
        match self {
            Self::Parquet(writer) => writer.write(rows),
            Self::Jsonl(writer) => writer.write(rows),
        }
    }

    /// Writes the end of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn finish(self) -> Result<Object, String> {
        match self {
            Self::Parquet(writer) => writer.finish(),
            Self::Jsonl(writer) => writer.finish(),
        }
    }
}
