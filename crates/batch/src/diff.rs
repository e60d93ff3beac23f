//! The comparison of two outputs, by key.

mod compare;
mod join;
mod layout;
mod rank;
mod sort;
mod spill;
mod values;

use std::{collections::VecDeque, path::PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{DataType as ArrowType, Field, Schema};
use outrigger_tables::{Leaf, TextColumn, is_json};
use serde::Serialize;
use serde_json::{Map, Value};

pub use self::compare::{ColumnDifference, Tolerance, Worst};
pub(crate) use self::{
    compare::Comparison,
    join::Sink,
    layout::{Columns, Row},
    values::Kind,
};
use self::{
    join::join,
    layout::{json_type, key_type, with_json},
};
use crate::{
    Error, Store,
    finished::{Finished, Form, Rows},
};

/// The parts of the memory for rows that wait for their partners, and for ranks.
const WAITING: u64 = 2;
const RANKS: u64 = 4;

/// The settings of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffSettings {
    /// The columns that identify a row; empty: all that both outputs have besides scores.
    pub keys: Vec<String>,
    /// The score columns; empty: all, which both outputs must have.
    pub scores: Vec<String>,
    /// The bytes for rows and ranks in memory.
    pub memory: u64,
    /// The most values of each column, and the most rows of one output, that are named.
    pub listed: usize,
}

/// The differences of two outputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The first output.
    pub a: PathBuf,
    /// The second output.
    pub b: PathBuf,
    /// The columns that identify a row.
    pub keys: Vec<String>,
    /// The rows of both outputs.
    pub rows: u64,
    /// The rows of the first output that the second one does not have.
    pub only_a: u64,
    /// The rows of the second output that the first one does not have.
    pub only_b: u64,
    /// The keys of some of the rows that only the first output has.
    pub first_only_a: Vec<Map<String, Value>>,
    /// The keys of some of the rows that only the second output has.
    pub first_only_b: Vec<Map<String, Value>>,
    /// The differences of the score columns.
    pub columns: Vec<ColumnDifference>,
}

impl Difference {
    /// True if a row is in one output only, or a value differs by more than `most` or not by a
    /// number.
    pub fn exceeds(&self, most: f64) -> bool {
        let exceeds = |column: &ColumnDifference| column.unequal > 0 || column.largest > most;
        self.only_a + self.only_b > 0 || self.columns.iter().any(exceeds)
    }
}

/// Compares the outputs of two finished jobs, or of their compactions. Blocks.
///
/// Outputs whose rows have about the same order are compared as they are read. Others are divided
/// among temporary files by the hash of the key, of about their size in all.
///
/// # Errors
/// An output is not finished, a file is missing or was changed, or the columns do not fit.
pub fn diff(a: &Store, b: &Store, settings: &DiffSettings) -> Result<Difference, Error> {
    let outputs = [Finished::open(a)?, Finished::open(b)?];
    let scores = scores(&outputs, &settings.scores)?;
    let keys = keys(&outputs, &settings.keys)?;
    let names = keys.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    check_json(&keys, &scores)?;
    let columns = Columns { keys: names.clone(), scores };
    let listed = (settings.listed, Tolerance::default());
    let is_json = keys.iter().any(is_json);
    let mut found = Comparison::new(&columns, keys, listed, settings.memory / RANKS);
    let [mut of_a, mut of_b] =
        outputs.each_ref().map(|output| Read::new(output, &columns, is_json));
    join([&mut of_a, &mut of_b], settings.memory / WAITING, &mut found)?;
    let (rows, [only_a, only_b]) = (found.rows, found.only.each_ref().map(|(count, _)| *count));
    let [first_only_a, first_only_b] = [0, 1].map(|side| found.only_keys(side));
    let [a, b] = [a, b].map(|store| store.root().to_owned());
    let columns = found.finish()?;
    Ok(Difference { a, b, keys: names, rows, only_a, only_b, first_only_a, first_only_b, columns })
}

/// The score columns that are compared.
fn scores(outputs: &[Finished; 2], named: &[String]) -> Result<Vec<(String, Kind)>, Error> {
    let [a, b] = outputs;
    let missing = |from: &Finished, names: &[String]| {
        let missing = names.iter().filter(|name| !from.scores.contains(name));
        missing.cloned().collect::<Vec<_>>()
    };
    // Without names, each output must have the scores of the other one.
    let [of_a, of_b] = match named {
        [] => [&a.scores[..], &b.scores[..]],
        named => [named; 2],
    };
    for (output, wanted) in [(a, of_b), (b, of_a)] {
        if let [name, ..] = &missing(output, wanted)[..] {
            let (root, scores) = (output.store.root().display(), output.scores.join(", "));
            return Err(Error::usage(format!(
                "{root} has no score column {name:?}; it has {scores}. Name those to compare"
            )));
        }
    }
    of_a.iter().map(|name| Ok((name.clone(), kind(outputs, name)?))).collect()
}

/// The kind of a score column's values, which must be the same in both outputs.
fn kind(outputs: &[Finished; 2], name: &str) -> Result<Kind, Error> {
    let types = types(outputs, |schema| match schema.field_with_name(name) {
        Ok(field) => Ok(field.data_type()),
        Err(_) => Err(format!("there is no column {name:?}")),
    })?;
    match &types[..] {
        [] => Ok(Kind::Other),
        [one] => Ok(Kind::of(one)),
        [a, b, ..] if Kind::of(a) == Kind::of(b) => Ok(Kind::of(a)),
        [a, b, ..] => Err(Error::usage(format!(
            "the score column {name:?} has {a} in the first output and {b} in the second one"
        ))),
    }
}

/// The columns that identify a row, with their types.
///
/// JSON Lines have no types: if an output has them, the values of both are compared as JSON.
fn keys(outputs: &[Finished; 2], named: &[String]) -> Result<Vec<Field>, Error> {
    let schemas: Vec<_> = outputs.iter().filter_map(|output| output.schema.as_ref()).collect();
    let names = match (named, &schemas[..]) {
        ([], [first, others @ ..]) => {
            let names = first.fields().iter().map(|field| field.name());
            let is_common = |name: &&String| {
                others.iter().all(|schema| schema.field_with_name(name).is_ok())
                    && !outputs.iter().any(|output| output.scores.contains(name))
            };
            names.filter(is_common).cloned().collect()
        }
        (named, _) => named.to_vec(),
    };
    if names.is_empty() && !schemas.is_empty() {
        return Err(Error::usage("the outputs have no column in common that is no score"));
    }
    let has_lines = |it: &Finished| it.schema.is_some() && matches!(it.form, Form::Lines(_));
    let is_json = outputs.iter().any(has_lines);
    let key = |name: String| {
        if is_json {
            types(outputs, |schema| json_type(schema, &name))?;
            return Ok(Some(TextColumn::of(&name, Leaf::Json).field()));
        }
        let types = types(outputs, |schema| key_type(schema, &name))?;
        match &types[..] {
            [a, b] if a != b => Err(Error::usage(format!(
                "the key {name:?} has {a} in the first output and {b} in the second one"
            ))),
            types => Ok(types.first().map(|of| Field::new(name, ArrowType::clone(of), true))),
        }
    };
    names.into_iter().filter_map(|name| key(name).transpose()).collect()
}

/// Checks that no column is a key as JSON and a score as well.
fn check_json(keys: &[Field], scores: &[(String, Kind)]) -> Result<(), Error> {
    let is_score = |key: &&Field| is_json(key) && scores.iter().any(|(name, _)| name == key.name());
    match keys.iter().find(is_score) {
        None => Ok(()),
        Some(key) => Err(Error::usage(format!(
            "the column {:?} cannot be both a key and a score in JSON Lines",
            key.name()
        ))),
    }
}

/// The type of a column in each output that has files.
fn types<'a>(
    outputs: &'a [Finished; 2],
    of: impl Fn(&'a Schema) -> Result<&'a ArrowType, String>,
) -> Result<Vec<&'a ArrowType>, Error> {
    let of = |output: &'a Finished| {
        let found = output.schema.as_ref().map(|schema| of(schema)).transpose();
        let root = output.store.root().display();
        found.map_err(|error| Error::usage(format!("{root}: {error}"))).transpose()
    };
    outputs.iter().filter_map(of).collect()
}

/// Reads the rows of an output.
struct Read<'a> {
    rows: Rows,
    columns: &'a Columns,
    /// True if keys are compared as JSON.
    is_json: bool,
    read: VecDeque<Row>,
}

impl<'a> Read<'a> {
    fn new(output: &Finished, columns: &'a Columns, is_json: bool) -> Self {
        Self { rows: output.rows(columns.names()), columns, is_json, read: VecDeque::new() }
    }

    fn parsed(&self, table: &RecordBatch) -> Result<Vec<Row>, Error> {
        match self.is_json {
            true => self.columns.rows(&with_json(table, &self.columns.keys)?),
            false => self.columns.rows(table),
        }
    }
}

impl Iterator for Read<'_> {
    type Item = Result<Row, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.read.is_empty() {
            let read = self.rows.next().transpose()?;
            match read.and_then(|table| self.parsed(&table)) {
                Ok(rows) => self.read.extend(rows),
                Err(error) => return Some(Err(error)),
            }
        }
        self.read.pop_front().map(Ok)
    }
}
