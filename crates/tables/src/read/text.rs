//! Rows of text, CSV and JSON Lines.

use std::{fs::File, str, sync::Arc};

use csv::ByteRecord;

use super::{Parsed, Row, csv::width_fault};
use crate::{
    Cell, Column, Format, Kind, Limits, Names, Source as _,
    error::Cause,
    records::too_long,
    text::{Reader, Record},
};

/// The most bytes of a text whose memory is used again.
const REUSED: usize = 256;

/// An open file.
#[derive(Debug)]
pub(super) struct Source {
    reader: Reader,
    /// The bytes of the file.
    size: u64,
    /// The columns that the header of CSV names.
    header: Option<(Names, Vec<Column>)>,
    limits: Limits,
}

impl Source {
    /// Reads the header of a file, if it has one.
    pub(super) fn new(file: File, format: Format, limits: &Limits) -> Result<Self, Cause> {
        let size = file.stat()?.size;
        let source: Arc<dyn crate::Source> = Arc::new(file);
        let (reader, names) = Reader::begin(&source, format, limits)?;
        let header = names.map(|names| {
            let column = |name: &Arc<str>| Column::new(Arc::clone(name), Kind::Text);
            let columns = names.iter().map(column).collect();
            (names, columns)
        });
        Ok(Self { reader, size, header, limits: *limits })
    }

    /// The columns of all rows; `None` if each row names its own.
    pub(super) fn columns(&self) -> Option<&[Column]> {
        self.header.as_ref().map(|(_, columns)| &**columns)
    }

    pub(super) fn position(&self) -> (u64, u64) {
        (self.reader.position(), self.size)
    }

    /// The next row, which is written to `row`.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(super) fn read(&mut self, row: &mut Row) -> Result<Option<Parsed>, Cause> {
        let Self { reader, header, limits, .. } = self;
        Ok(reader.next()?.map(|record| match (record, header) {
            (Record::Cells(cells), Some((names, _))) => read_cells(cells, names, row),
            (Record::Line(line), _) => read_line(line, limits, row),
            _ => Err(too_long(limits.row)),
        }))
    }
}

fn read_cells(record: &ByteRecord, names: &Names, row: &mut Row) -> Parsed {
    if let Some(fault) = width_fault(record, names.len()) {
        return Err(fault);
    }
    if !Arc::ptr_eq(&row.names, names) {
        row.names = Arc::clone(names);
        row.cells.resize(names.len(), Cell::Absent);
    }
    let texts = record.iter().zip(names.iter());
    texts.zip(&mut row.cells).try_for_each(|((bytes, name), cell)| write(bytes, name, cell))
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

fn read_line(line: &[u8], limits: &Limits, row: &mut Row) -> Parsed {
    let Cell::Object(members) = Cell::parse(line, limits.parsed())? else {
        return Err("not a JSON object".to_owned());
    };
    let same = members.len() == row.names.len()
        && members.iter().zip(row.names.iter()).all(|((name, _), before)| **name == **before);
    if !same {
        row.names = members.iter().map(|(name, _)| Arc::from(name.as_str())).collect();
    }
    row.cells.clear();
    row.cells.extend(members.into_iter().map(|(_, cell)| cell));
    Ok(())
}
