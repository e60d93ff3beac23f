//! Rows of text as values of columns.

use std::{collections::HashMap, sync::Arc};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use csv::ByteRecord;
use outrigger_json::Cursor;

use super::{TextBatch, TextColumn, builder::Builder, reader::Record, values::Fault};
use crate::{Names, error::Cause, read::csv::width_fault, records::too_long};

/// The columns of the rows that were read.
#[derive(Debug)]
pub(super) struct Parser {
    columns: Vec<Builder>,
    form: Form,
    /// The most bytes of a row.
    most: usize,
    rows: usize,
    malformed: Vec<(usize, String)>,
}

/// The places of the columns in a row.
#[derive(Debug)]
enum Form {
    /// The columns by their names, and for each the number of the last row that had it.
    Lines { places: HashMap<Vec<u8>, usize>, seen: Vec<u64>, row: u64 },
    /// For each column its cell, and the number of cells.
    Cells { places: Vec<usize>, width: usize },
}

impl Parser {
    /// A parser of rows with these columns. `names` is the header of CSV.
    ///
    /// # Errors
    /// The header has not all columns.
    pub(super) fn new(
        columns: &[TextColumn],
        names: Option<&Names>,
        most: usize,
    ) -> Result<Self, Cause> {
        let form = match names {
            None => {
                let named = columns.iter().map(|column| column.name.clone().into_bytes());
                Form::Lines {
                    places: named.zip(0..).collect(),
                    seen: vec![0; columns.len()],
                    row: 0,
                }
            }
            Some(names) => {
                let place = |column: &TextColumn| {
                    let place = names.iter().position(|name| **name == *column.name);
                    place.ok_or_else(|| {
                        Cause::of(format_args!("there is no column {:?}", column.name))
                    })
                };
                let places = columns.iter().map(place).collect::<Result<_, _>>()?;
                Form::Cells { places, width: names.len() }
            }
        };
        let columns = columns.iter().cloned().map(Builder::new).collect();
        Ok(Self { columns, form, most, rows: 0, malformed: Vec::new() })
    }

    /// The number of rows that were read and not taken.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Reads a row. One that is malformed has no values.
    pub(super) fn row(&mut self, record: Record<'_>) {
        self.columns.iter_mut().for_each(Builder::begin);
        let read = match (record, &mut self.form) {
            (Record::Line(line), Form::Lines { places, seen, row }) => {
                *row += 1;
                read_line(line, &mut self.columns, (places, seen, *row))
            }
            (Record::Cells(cells), Form::Cells { places, width }) => {
                read_cells(cells, &mut self.columns, (places, *width))
            }
            _ => Err(too_long(self.most)),
        };
        if let Err(message) = read {
            self.columns.iter_mut().for_each(Builder::undo);
            self.malformed.push((self.rows, message));
        }
        self.columns.iter_mut().for_each(Builder::complete);
        self.rows += 1;
    }

    /// All rows that were read. None are left.
    ///
    /// # Errors
    /// The columns are not those of `schema`.
    pub(super) fn take(&mut self, schema: &SchemaRef) -> Result<TextBatch, ArrowError> {
        let columns = self.columns.iter_mut().map(Builder::take).collect::<Result<_, _>>()?;
        let count = std::mem::take(&mut self.rows);
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let rows = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
        Ok(TextBatch { rows, malformed: std::mem::take(&mut self.malformed) })
    }
}

/// Reads the members of an object of JSON that are columns, and checks the others.
fn read_line(
    line: &[u8],
    columns: &mut [Builder],
    (places, seen, row): (&HashMap<Vec<u8>, usize>, &mut [u64], u64),
) -> Result<(), String> {
    if std::str::from_utf8(line).is_err() {
        return Err("not UTF-8".to_owned());
    }
    let mut cursor = Cursor::new(line);
    let mut current = None;
    if cursor.next() != Some(b'{') && cursor.value(0).is_ok() && cursor.end().is_ok() {
        return Err("not a JSON object".to_owned());
    }
    let read = cursor.object(|key, cursor| {
        current = places.get(&*key.read()?).copied();
        let Some(place) = current else { return Ok(cursor.value(0)?) };
        if std::mem::replace(&mut seen[place], row) == row {
            return Err(Fault::Value("the key stands here twice".to_owned()));
        }
        columns[place].json(cursor)
    });
    match (read.and_then(|()| Ok(cursor.end()?)), current) {
        (Ok(()), _) => Ok(()),
        (Err(Fault::Value(message)), Some(place)) => {
            Err(format!("{}: {message}", columns[place].name()))
        }
        (Err(_), _) => Err(format!("not JSON at byte {}", line.len() - cursor.rest.len() + 1)),
    }
}

/// Reads the cells that are columns.
fn read_cells(
    cells: &ByteRecord,
    columns: &mut [Builder],
    (places, width): (&[usize], usize),
) -> Result<(), String> {
    if let Some(fault) = width_fault(cells, width) {
        return Err(fault);
    }
    for (column, place) in columns.iter_mut().zip(places) {
        let cell = cells.get(*place).unwrap_or_default();
        let read = match std::str::from_utf8(cell) {
            Ok(cell) => column.cell(cell),
            Err(_) => Err(Fault::Value("not UTF-8".to_owned())),
        };
        read.map_err(|fault| match fault {
            Fault::Value(message) => format!("{}: {message}", column.name()),
            Fault::Syntax => format!("{}: not a list of JSON", column.name()),
        })?;
    }
    Ok(())
}
