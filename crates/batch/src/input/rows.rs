//! Rows of a file of the input.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use outrigger_tables::{Batches, TextBatch, TextColumn, TextRows};

use super::{InputFile, open::OpenFile};
use crate::{Error, language, plan::Scoring, store::Patience};

/// Rows, of which some may be malformed.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pub(crate) table: RecordBatch,
    /// The positions of the malformed rows, in order, each with its fault.
    pub(crate) malformed: Vec<(usize, String)>,
}

/// The rows of some ranges of a file.
#[derive(Debug)]
pub(crate) struct Reading {
    file: OpenFile,
    batches: Decoded,
    /// True if the rows are lines of OpenAI's batches, which are checked.
    has_lines: bool,
}

#[derive(Debug)]
enum Decoded {
    Parquet(Batches),
    Text(Box<TextRows>),
}

impl Reading {
    /// The rows at these positions among those of a planned file that are scored, with the columns
    /// that the job needs. They are read with `patience` if they are in a store that is away.
    ///
    /// # Errors
    /// The file cannot be read, or has changed.
    pub(crate) fn new(
        scoring: &Scoring,
        planned: &InputFile,
        positions: Range<u64>,
        patience: &Patience,
    ) -> Result<Self, Error> {
        let file = open(scoring, planned, patience)?;
        let ranges = planned.ranges(positions);
        let reading = Self::of(file, (planned, &scoring.types), &ranges, &scoring.columns())?;
        Ok(Self { has_lines: scoring.protocol.is_language(), ..reading })
    }

    /// The rows with these numbers in a planned file, with all of its columns, or those of text that
    /// the job needs.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn whole(
        scoring: &Scoring,
        planned: &InputFile,
        ranges: &[Range<u64>],
    ) -> Result<Self, Error> {
        let file = open(scoring, planned, &Patience::default())?;
        let columns: Vec<_> = match &file {
            OpenFile::Parquet(table) => {
                table.schema().fields().iter().map(|field| field.name().clone()).collect()
            }
            OpenFile::Text(_) => Vec::new(),
        };
        let columns: Vec<_> = columns.iter().map(String::as_str).collect();
        Self::of(file, (planned, &scoring.types), ranges, &columns)
    }

    fn of(
        file: OpenFile,
        (planned, types): (&InputFile, &[TextColumn]),
        ranges: &[Range<u64>],
        columns: &[&str],
    ) -> Result<Self, Error> {
        let batches = match &file {
            OpenFile::Parquet(table) => Decoded::Parquet(table.read(ranges, columns)?),
            OpenFile::Text(text) => {
                let index = planned.index.clone().unwrap_or_default();
                Decoded::Text(text.read(&index, ranges, types)?.into())
            }
        };
        Ok(Self { file, batches, has_lines: false })
    }

    /// The columns that are read, with their types.
    pub(crate) fn schema(&self) -> &SchemaRef {
        match &self.batches {
            Decoded::Parquet(batches) => batches.schema(),
            Decoded::Text(rows) => rows.schema(),
        }
    }

    /// The next rows, at most `most`. `None` if none are left.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(crate) fn next(&mut self, most: usize) -> Result<Option<Rows>, Error> {
        self.next_within(most, u64::MAX)
    }

    /// As [`next`](Self::next), and fewer rows of Parquet if they would take more than `bytes` of
    /// memory. A single row may take more. Rows of text are bounded by their text.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn next_within(&mut self, most: usize, bytes: u64) -> Result<Option<Rows>, Error> {
        let mut rows = match &mut self.batches {
            Decoded::Parquet(batches) => batches.next_within(most, bytes)?.map(Rows::from),
            Decoded::Text(rows) => rows.next(most)?.map(Rows::from),
        };
        if let Some(rows) = rows.as_mut().filter(|_| self.has_lines) {
            language::check(rows);
        }
        Ok(rows)
    }

    /// Checks that the file is still the one that was planned.
    ///
    /// # Errors
    /// It has changed.
    pub(crate) fn check(&self, planned: &InputFile) -> Result<(), Error> {
        self.file.check(planned)
    }
}

/// Opens a planned file.
fn open(scoring: &Scoring, planned: &InputFile, patience: &Patience) -> Result<OpenFile, Error> {
    // A file that has changed may be damaged: that is the reason then.
    planned.check()?;
    // It was opened when the job was planned: if it cannot be now, no setting is at fault.
    let file = OpenFile::new(&planned.path, scoring.format, patience).map_err(Error::failed)?;
    file.check(planned)?;
    Ok(file)
}

impl Rows {
    /// The rows from a position on.
    pub(crate) fn after(&self, start: usize) -> Self {
        let table = self.table.slice(start, self.table.num_rows() - start);
        let malformed = self.malformed.iter().filter(|(row, _)| *row >= start);
        let malformed = malformed.map(|(row, fault)| (row - start, fault.clone())).collect();
        Self { table, malformed }
    }

    /// Some of the rows.
    pub(crate) fn slice(&self, start: usize, count: usize) -> Self {
        let mut rows = self.after(start);
        rows.table = rows.table.slice(0, count);
        rows.malformed.retain(|(row, _)| *row < count);
        rows
    }
}

impl From<RecordBatch> for Rows {
    fn from(table: RecordBatch) -> Self {
        Self { table, malformed: Vec::new() }
    }
}

impl From<TextBatch> for Rows {
    fn from(TextBatch { rows, malformed }: TextBatch) -> Self {
        Self { table: rows, malformed }
    }
}
