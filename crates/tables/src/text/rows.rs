//! Ranges of rows of a file of text.

use std::{collections::VecDeque, fmt, ops::Range, path::PathBuf, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use super::{Index, Source, TextColumn, TextFile, parser::Parser, reader::Reader};
use crate::{Error, Format, Limits, error::Cause};

/// The bytes of text after which rows are returned, though more may be wanted. While they are read,
/// the values of a text take at most ten times its memory.
const BATCH_BYTES: usize = 4 << 20;

/// The rows of some ranges of a [`TextFile`].
pub struct TextRows {
    path: PathBuf,
    source: Arc<dyn Source>,
    format: Format,
    limits: Limits,
    index: Arc<Index>,
    /// The rows that are still to be read.
    ranges: VecDeque<Range<u64>>,
    open: Option<Open>,
    parser: Parser,
    schema: SchemaRef,
}

/// The file as it is read.
struct Open {
    reader: Reader,
    /// The number of the row that comes next.
    row: u64,
}

/// Rows, of which some may be malformed.
#[derive(Debug, Clone, PartialEq)]
pub struct TextBatch {
    /// The rows. A malformed one has no values.
    pub rows: RecordBatch,
    /// The positions of the malformed rows among these, in order, each with its fault.
    pub malformed: Vec<(usize, String)>,
}

impl TextRows {
    pub(super) fn new(
        file: &TextFile,
        index: Arc<Index>,
        ranges: &[Range<u64>],
        columns: &[TextColumn],
    ) -> Result<Self, Cause> {
        let TextFile { path, source, format, limits, .. } = file;
        let names = match format {
            Format::Csv => Reader::begin(source, *format, limits)?.1,
            _ => None,
        };
        let fields = columns.iter().map(TextColumn::field).collect::<Vec<_>>();
        Ok(Self {
            path: path.clone(),
            source: Arc::clone(source),
            format: *format,
            limits: *limits,
            index,
            ranges: ranges.iter().filter(|range| !range.is_empty()).cloned().collect(),
            open: None,
            parser: Parser::new(columns, names.as_ref(), limits.row)?,
            schema: Schema::new(fields).into(),
        })
    }

    /// The columns that are read, with their types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows, at most `most`, and fewer if they have more than 4 MiB of text. `None` if
    /// none are left.
    ///
    /// # Errors
    /// The file cannot be read any further, or ends before the last range.
    pub fn next(&mut self, most: usize) -> Result<Option<TextBatch>, Error> {
        let read = self.read(most.max(1));
        read.map_err(|cause| Error::new(&self.path, cause))
    }

    fn read(&mut self, most: usize) -> Result<Option<TextBatch>, Cause> {
        let mut bytes = 0;
        while self.parser.rows() < most && bytes < BATCH_BYTES {
            let Some(range) = self.ranges.front_mut() else { break };
            let row = range.start;
            range.start += 1;
            if range.is_empty() {
                self.ranges.pop_front();
            }
            self.seek(row)?;
            let Some(Open { reader, row: next }) = &mut self.open else { break };
            let record = reader.next().map_err(|cause| cause.at_row(row + 1))?;
            let record = record.ok_or_else(|| ends_early(row))?;
            *next += 1;
            bytes += record.bytes();
            self.parser.row(record);
        }
        match self.parser.rows() {
            0 => Ok(None),
            _ => self.parser.take(&self.schema).map(Some).map_err(Cause::of),
        }
    }

    /// Reads on until a row comes next: from where the file is open, unless a mark is nearer.
    fn seek(&mut self, row: u64) -> Result<(), Cause> {
        if self.open.as_ref().is_some_and(|open| open.row == row) {
            return Ok(());
        }
        let (marked, position) = self.index.before(row);
        let is_near = |open: &Open| (marked..=row).contains(&open.row);
        if !self.open.as_ref().is_some_and(is_near) {
            let reader = Reader::at(&self.source, (self.format, position), &self.limits)?;
            self.open = Some(Open { reader, row: marked });
        }
        while let Some(Open { reader, row: next }) = &mut self.open
            && *next < row
        {
            if reader.next().map_err(|cause| cause.at_row(*next + 1))?.is_none() {
                return Err(ends_early(*next));
            }
            *next += 1;
        }
        Ok(())
    }
}

fn ends_early(row: u64) -> Cause {
    Cause::of(format_args!("the file ends before row {}", row + 1))
}

impl fmt::Debug for TextRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextRows").field("path", &self.path).finish_non_exhaustive()
    }
}
