//! The first reading of a file of text: its rows are counted, and its columns found.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use csv::ByteRecord;
use outrigger_json::{Cursor, Odd, Read};

use super::{
    Found, Index, Source, TextColumn,
    builder::Builder,
    reader::{Reader, Record},
};
use crate::{Format, Limits, Names, error::Cause};

/// The most columns of JSON Lines.
const COLUMNS: usize = 10_000;
/// The most bytes of all their names.
const NAMES: usize = 1 << 20;

/// The columns that a scan looks at.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Columns whose types are known.
    pub typed: Vec<TextColumn>,
    /// The other columns that are wanted.
    pub infer: Infer,
}

/// Columns whose types a scan finds.
#[derive(Debug, Clone)]
pub enum Infer {
    /// All that are not known.
    All,
    /// Those of these names.
    Only(BTreeSet<String>),
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The number of rows, of which some may be malformed.
    pub rows: u64,
    /// The positions of rows.
    pub index: Index,
    /// All columns of CSV, in the order of the header; the wanted ones of JSON Lines, in the order
    /// in which they first occur.
    pub columns: Vec<Seen>,
}

/// A column that a scan has found.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// True if a row has a value.
    pub has_values: bool,
    /// True if a value is of the type that is known.
    pub fits: bool,
    /// The types of its values, if they are not known. All values of CSV are texts.
    pub found: Found,
}

/// Scans a file.
pub(super) fn scan(
    source: &Arc<dyn Source>,
    format: Format,
    limits: &Limits,
    wanted: &Wanted,
) -> Result<Scan, Cause> {
    let (mut reader, names) = Reader::begin(source, format, limits)?;
    let mut scanner = Scanner::new(wanted, names.as_ref());
    let (mut rows, mut index) = (0, Index::default());
    loop {
        let position = reader.position();
        let Some(record) = reader.next().map_err(|cause| cause.at_row(rows + 1))? else { break };
        index.offer(rows, position);
        match record {
            // A malformed row is found again when it is read.
            Record::Line(line) => _ = scanner.line(line),
            Record::Cells(cells) => scanner.cells(cells),
            Record::TooLong => {}
        }
        if scanner.names > NAMES || scanner.columns.len() > COLUMNS {
            return Err(Cause::too_large(format_args!(
                "row {}: the rows have more than {COLUMNS} different keys, or longer ones than \
                 {NAMES} bytes: name those that the output needs",
                rows + 1
            )));
        }
        rows += 1;
    }
    let columns = scanner.columns.into_iter().map(|column| column.seen).collect();
    Ok(Scan { rows, index, columns })
}

/// The columns that were found so far.
struct Scanner<'a> {
    wanted: &'a Wanted,
    columns: Vec<Column>,
    places: HashMap<Vec<u8>, usize>,
    /// The bytes of all names.
    names: usize,
    /// The types of the columns in the row that is being read.
    row: Vec<(usize, Found)>,
}

struct Column {
    seen: Seen,
    /// Reads the values of a type that is known.
    check: Option<Builder>,
}

impl<'a> Scanner<'a> {
    fn new(wanted: &'a Wanted, header: Option<&Names>) -> Self {
        let (columns, places) = Default::default();
        let mut scanner = Self { wanted, columns, places, names: 0, row: Vec::new() };
        for name in header.iter().flat_map(|names| names.iter()) {
            scanner.add(name);
        }
        scanner
    }

    /// Adds a column.
    fn add(&mut self, name: &str) -> usize {
        let typed = self.wanted.typed.iter().find(|column| column.name == name);
        let (has_values, fits, found) = Default::default();
        let seen = Seen { name: name.to_owned(), has_values, fits, found };
        self.columns.push(Column { seen, check: typed.cloned().map(Builder::new) });
        self.columns.len() - 1
    }

    /// The place of the column of this name; `None` if it is not wanted.
    fn place(&mut self, name: &[u8]) -> Option<usize> {
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        let text = str::from_utf8(name).ok()?;
        let is_wanted = self.wanted.typed.iter().any(|column| column.name == text)
            || match &self.wanted.infer {
                Infer::All => true,
                Infer::Only(names) => names.contains(text),
            };
        if !is_wanted {
            return None;
        }
        let place = self.add(text);
        self.names += name.len();
        self.places.insert(name.to_owned(), place);
        Some(place)
    }

    /// Looks at a row of JSON Lines, which changes nothing if it is malformed.
    fn line(&mut self, line: &[u8]) -> Read<()> {
        str::from_utf8(line).map_err(|_| Odd)?;
        self.row.clear();
        let mut cursor = Cursor::new(line);
        cursor.object(|key, cursor| {
            let Some(place) = self.place(&key.read()?) else { return cursor.pass() };
            let column = &mut self.columns[place];
            match &mut column.check {
                None => {
                    let found = Found::read(cursor, 0)?;
                    column.seen.has_values |= found != Found::Nothing;
                    self.row.push((place, found));
                    Ok(())
                }
                Some(check) => {
                    let mut value = *cursor;
                    cursor.pass()?;
                    if value.peek() != Some(b'n') {
                        column.seen.check(check, |check| check.json(&mut value).is_ok());
                    }
                    Ok(())
                }
            }
        })?;
        cursor.end()?;
        for (place, found) in self.row.drain(..) {
            self.columns[place].seen.found.merge(found);
        }
        Ok(())
    }

    /// Looks at a row of CSV.
    fn cells(&mut self, cells: &ByteRecord) {
        for (cell, Column { seen, check }) in cells.iter().zip(&mut self.columns) {
            if cell.is_empty() {
                continue;
            }
            match check {
                Some(check) => seen.check(check, |check| {
                    str::from_utf8(cell).is_ok_and(|cell| check.cell(cell).is_ok())
                }),
                None => (seen.has_values, seen.found) = (true, Found::Texts),
            }
        }
    }
}

impl Seen {
    /// Tries a value, until one is of the type that is known.
    fn check(&mut self, check: &mut Builder, read: impl FnOnce(&mut Builder) -> bool) {
        self.has_values = true;
        if !self.fits {
            check.begin();
            self.fits = read(check);
            check.undo();
        }
    }
}
