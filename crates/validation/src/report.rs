//! The report of a run.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use outrigger_core::{Failure, Reason};
use serde::Serialize;

use crate::{agreement::Agreement, options::Tolerance, refused::Sent, text::cut};

/// The rows that are named of those with one error.
const FIRST: usize = 5;

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// The number of rows that were read.
    pub rows: u64,
    /// The number of those that have a score for every treatment.
    pub scored: u64,
    /// The number of requests.
    pub requests: u64,
    /// The number of errors: rows, or requests with all their rows, that have no score.
    pub errors: u64,
    /// The first errors, in the order of the file.
    pub first_errors: Vec<RowError>,
    /// True if the run ended early because of its errors. No scores are written then.
    pub stopped: bool,
    /// The digests of the models that answered, with the number of their requests.
    pub digests: BTreeMap<String, u64>,
    /// The columns that are neither reserved nor features of the model; at most 100.
    pub ignored: Vec<String>,
    /// The comparison with expected scores; `None` if there are none, or the model draws at random.
    pub agreement: Option<Agreement>,
    /// The tolerance of the comparison.
    #[serde(skip)]
    pub tolerance: Tolerance,
}

/// A row that could not be scored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowError {
    /// The number of the row; of the first one, if a request failed.
    pub row: u64,
    /// The stable reason.
    pub reason: Reason,
    /// The cause.
    pub message: String,
    /// The value that the model refused, if it is known and no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Report {
    /// True if every row was scored and agrees with its expected score.
    pub fn passed(&self) -> bool {
        let differing = self.agreement.as_ref().map_or(0, |agreement| agreement.differing);
        self.errors == 0 && differing == 0
    }

    /// The listed errors, of which equal ones are one with the numbers of their rows.
    fn equal_errors(&self) -> Vec<(&RowError, Vec<u64>)> {
        let mut found: Vec<(&RowError, Vec<u64>)> = Vec::new();
        let mut places = HashMap::new();
        for error in &self.first_errors {
            let place = *places.entry((error.reason, &error.message)).or_insert(found.len());
            match found.get_mut(place) {
                Some((_, rows)) => rows.push(error.row),
                None => found.push((error, vec![error.row])),
            }
        }
        found
    }

    /// Counts an error; the first `listed` are listed.
    pub(crate) fn add_error(
        &mut self,
        row: u64,
        failure: &Failure,
        sent: &Sent<'_>,
        listed: usize,
    ) {
        self.errors += 1;
        if self.first_errors.len() < listed {
            let value = sent.refused(failure);
            let Failure { reason, message, .. } = failure.clone();
            self.first_errors.push(RowError { row, reason, message: cut(message), value });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, scored, requests, errors, .. } = self;
        writeln!(f, "rows     {rows} in {requests} requests: {scored} scored, {errors} errors")?;
        for (digest, requests) in &self.digests {
            writeln!(f, "digest   {digest}: {requests} requests")?;
        }
        if !self.ignored.is_empty() {
            let names = self.ignored.join(", ");
            writeln!(f, "ignored  columns that are not features of the model: {names}")?;
        }
        for (RowError { row, reason, message, value }, rows) in self.equal_errors() {
            let mut which = "value";
            match &rows[1..] {
                [] => write!(f, "error    row {row}")?,
                _ => {
                    which = "first value";
                    let first: Vec<_> = rows.iter().take(FIRST).map(u64::to_string).collect();
                    let more = if rows.len() > FIRST { ", …" } else { "" };
                    let count = rows.len();
                    write!(f, "error    {count} rows ({}{more})", first.join(", "))?;
                }
            }
            write!(f, ": {reason}: {message}")?;
            match value {
                Some(value) => writeln!(f, "; {which} {value}")?,
                None => writeln!(f)?,
            }
        }
        if self.stopped {
            writeln!(f, "stopped  after too many errors; no scores were written")?;
        }
        let agreement = self.agreement.as_ref();
        let lines = agreement.map(|it| it.lines(self.tolerance, ["expected", "score"], "row"));
        for (at, line) in lines.into_iter().flatten().enumerate() {
            let name = if at == 0 { "expected" } else { "" };
            writeln!(f, "{name:8} {line}")?;
        }
        Ok(())
    }
}
