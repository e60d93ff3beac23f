//! The records of a file of text, one at a time.

use std::{
    fmt,
    io::{BufReader, Read},
    sync::Arc,
};

use csv::ByteRecord;

use super::Source;
use crate::{
    Format, Limits, Names,
    error::Cause,
    read::csv::{header, next_record, records},
    records::{Counted, Line, Lines},
};

/// The bytes that are read at once.
const BUFFER: usize = 256 << 10;

type Input = Box<dyn Read + Send>;

/// Reads the records of a file, from any of them on.
pub(crate) enum Reader {
    Lines(Lines<Input>),
    Cells {
        reader: csv::Reader<Counted<Input>>,
        record: ByteRecord,
        /// The position of the first byte that was read.
        start: u64,
    },
}

/// A row of text.
#[derive(Clone, Copy)]
pub(crate) enum Record<'a> {
    Line(&'a [u8]),
    TooLong,
    Cells(&'a ByteRecord),
}

impl Reader {
    /// Reads a file from its begin. CSV has a header, whose names are returned.
    ///
    /// # Errors
    /// The file cannot be read, or its header is not valid.
    pub(crate) fn begin(
        source: &Arc<dyn Source>,
        format: Format,
        limits: &Limits,
    ) -> Result<(Self, Option<Names>), Cause> {
        let mut reader = Self::open(source, (format, 0), limits, true)?;
        let names = match &mut reader {
            Self::Lines(_) => None,
            Self::Cells { reader, .. } => Some(header(reader, limits)?),
        };
        match &names {
            Some(names) if names.is_empty() => {
                Err(Cause::of("the file is empty, and CSV begins with a header"))
            }
            _ => Ok((reader, names)),
        }
    }

    /// Reads a file from the record at a position.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn at(
        source: &Arc<dyn Source>,
        (format, position): (Format, u64),
        limits: &Limits,
    ) -> Result<Self, Cause> {
        Self::open(source, (format, position), limits, false)
    }

    fn open(
        source: &Arc<dyn Source>,
        (format, start): (Format, u64),
        limits: &Limits,
        has_header: bool,
    ) -> Result<Self, Cause> {
        let input = Arc::clone(source).read_from(start)?;
        Ok(match format {
            Format::Csv => {
                let reader = records(Counted::new(input, limits.row), has_header);
                Self::Cells { reader, record: ByteRecord::new(), start }
            }
            _ => {
                let input = BufReader::with_capacity(BUFFER, input);
                Self::Lines(Lines::new(input, start, limits.row))
            }
        })
    }

    /// The position from which the next record is read.
    pub(crate) fn position(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.position(),
            Self::Cells { reader, start, .. } => start + reader.position().byte(),
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, Cause> {
        Ok(match self {
            Self::Lines(lines) => match lines.read()? {
                Line::End => None,
                Line::TooLong => Some(Record::TooLong),
                Line::Read => Some(Record::Line(lines.line())),
            },
            Self::Cells { reader, record, .. } => {
                next_record(reader, record)?.then_some(Record::Cells(record))
            }
        })
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Record<'_> {
    /// Its bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Record::Line(line) => line.len(),
            Record::TooLong => 0,
            Record::Cells(cells) => cells.as_slice().len(),
        }
    }
}
