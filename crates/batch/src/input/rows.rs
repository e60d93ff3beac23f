//! Rows of a file of the input.

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use outrigger_tables::{Batches, TextBatch, TextRows};

use super::{InputFile, open::OpenFile};
use crate::{Error, plan::Scoring, store::Patience};

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
        // A file that has changed may be damaged: that is the reason then.
        planned.check()?;
        let file = OpenFile::new(&planned.path, scoring.format, patience)?;
        file.check(planned)?;
        let ranges = planned.ranges(positions);
        let batches = match &file {
            OpenFile::Parquet(table) => Decoded::Parquet(table.read(&ranges, &scoring.columns())?),
            OpenFile::Text(text) => {
                let index = planned.index.clone().unwrap_or_default();
                Decoded::Text(text.read(&index, &ranges, &scoring.types)?.into())
            }
        };
        Ok(Self { file, batches })
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
        Ok(match &mut self.batches {
            Decoded::Parquet(batches) => batches.next(most)?.map(Rows::from),
            Decoded::Text(rows) => rows.next(most)?.map(Rows::from),
        })
    }

    /// Checks that the file is still the one that was planned.
    ///
    /// # Errors
    /// It has changed.
    pub(crate) fn check(&self, planned: &InputFile) -> Result<(), Error> {
        self.file.check(planned)
    }
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
