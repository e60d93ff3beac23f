//! Rows of CSV.

use std::{fs::File, io::Read, str, sync::Arc};

use csv::{ByteRecord, ReaderBuilder};

use super::{Parsed, Row};
use crate::{Cell, Column, Kind, Limits, Names, cell::repeated, error::Cause, records::Counted};

/// The bytes that are read at once.
const BUFFER: usize = 64 << 10;
/// The bytes of memory that a column takes, with what its readers keep for it.
const COLUMN: usize = 256;
/// The most bytes of a text whose memory is used again.
const REUSED: usize = 256;

/// An open file.
#[derive(Debug)]
pub(super) struct Source {
    reader: csv::Reader<Counted<File>>,
    columns: Vec<Column>,
    names: Names,
    record: ByteRecord,
}

impl Source {
    /// Reads the header of a file.
    pub(super) fn new(file: File, limits: &Limits) -> Result<Self, Cause> {
        let mut reader = records(Counted::of(file, limits.row)?, true);
        let names = header(&mut reader, limits)?;
        let columns = names.iter().map(|name| Column::new(Arc::clone(name), Kind::Text)).collect();
        Ok(Self { reader, columns, names, record: ByteRecord::new() })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn position(&self) -> (u64, u64) {
        self.reader.get_ref().position()
    }

    /// The next row, which is written to `row`.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(super) fn read(&mut self, row: &mut Row) -> Result<Option<Parsed>, Cause> {
        let more = next_record(&mut self.reader, &mut self.record)?;
        Ok(more.then(|| self.write_to(row)))
    }

    fn write_to(&self, row: &mut Row) -> Parsed {
        let expected = self.names.len();
        if let Some(fault) = width_fault(&self.record, expected) {
            return Err(fault);
        }
        if !Arc::ptr_eq(&row.names, &self.names) {
            row.names = Arc::clone(&self.names);
            row.cells.resize(expected, Cell::Absent);
        }
        let texts = self.record.iter().zip(self.names.iter());
        texts.zip(&mut row.cells).try_for_each(|((bytes, name), cell)| write(bytes, name, cell))
    }
}

/// The records of a file, of which the first is its header if `has_header` is true.
pub(crate) fn records<R: Read>(input: Counted<R>, has_header: bool) -> csv::Reader<Counted<R>> {
    ReaderBuilder::new()
        .buffer_capacity(BUFFER)
        .has_headers(has_header)
        // Rows of another length are reported one by one.
        .flexible(true)
        .from_reader(input.with_quotes())
}

/// Reads the names in the header.
///
/// # Errors
/// The file cannot be read, or a name is repeated or not UTF-8.
pub(crate) fn header<R: Read>(
    reader: &mut csv::Reader<Counted<R>>,
    limits: &Limits,
) -> Result<Names, Cause> {
    reader.get_mut().allow_row();
    let header = reader.byte_headers().map_err(cause)?;
    let (count, most) = (header.len(), limits.parsed() / COLUMN);
    if count > most {
        let message = format!("the header has {count} columns, more than {most}");
        return Err(Cause::too_large(message));
    }
    let names = header.iter().map(|name| str::from_utf8(name).map(Arc::<str>::from));
    let names = names.collect::<Result<Vec<_>, _>>();
    let names = Names::from(names.map_err(|_| Cause::of("the header is not UTF-8"))?);
    match repeated(names.iter().map(|name| &**name)) {
        None => Ok(names),
        Some(name) => {
            Err(Cause::of(format_args!("the column {name:?} stands in the header twice")))
        }
    }
}

/// Reads the next record; false at the end.
///
/// # Errors
/// The file cannot be read, or the record is too long.
pub(crate) fn next_record<R: Read>(
    reader: &mut csv::Reader<Counted<R>>,
    record: &mut ByteRecord,
) -> Result<bool, Cause> {
    reader.get_mut().allow_row();
    reader.read_byte_record(record).map_err(cause)
}

/// The fault of a record that has not as many cells as the header; `None` if it has.
pub(crate) fn width_fault(record: &ByteRecord, expected: usize) -> Option<String> {
    let found = record.len();
    (found != expected).then(|| format!("{found} cells, but the header has {expected}"))
}

fn cause(error: csv::Error) -> Cause {
    let message = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        _ => Cause::of(message),
    }
}

/// Writes the text of a cell of the column `name`. The memory of a short earlier text is used again.
fn write(bytes: &[u8], name: &str, cell: &mut Cell) -> Parsed {
    let text = str::from_utf8(bytes).map_err(|_| format!("{name}: not UTF-8"))?;
    match cell {
        _ if text.is_empty() => *cell = Cell::Absent,
        Cell::Untyped(before) if before.capacity() <= REUSED => text.clone_into(before),
        _ => *cell = Cell::Untyped(text.to_owned()),
    }
    Ok(())
}
