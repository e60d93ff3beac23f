//! The report of a run.

use std::{collections::BTreeMap, fmt};

use outrigger_core::{Failure, Reason};
use serde::Serialize;

use crate::{
    agreement::{Agreement, Difference},
    options::Tolerance,
    text::cut,
};

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
}

impl Report {
    /// True if every row was scored and agrees with its expected score.
    pub fn passed(&self) -> bool {
        let differing = self.agreement.as_ref().map_or(0, |agreement| agreement.differing);
        self.errors == 0 && differing == 0
    }

    /// Counts an error; the first `listed` are listed.
    pub(crate) fn add_error(&mut self, row: u64, failure: &Failure, listed: usize) {
        self.errors += 1;
        if self.first_errors.len() < listed {
            let Failure { reason, message, .. } = failure.clone();
            self.first_errors.push(RowError { row, reason, message: cut(message) });
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
        for RowError { row, reason, message } in &self.first_errors {
            writeln!(f, "error    row {row}: {reason}: {message}")?;
        }
        if self.stopped {
            writeln!(f, "stopped  after too many errors; no scores were written")?;
        }
        self.agreement.as_ref().map_or(Ok(()), |agreement| self.write_agreement(agreement, f))
    }
}

impl Report {
    fn write_agreement(&self, agreement: &Agreement, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tolerance { atol, rtol } = self.tolerance;
        let Agreement { compared, differing, largest, mean, .. } = agreement;
        writeln!(
            f,
            "expected {compared} scores compared: {differing} differ by more than {atol} + {rtol} x |expected|"
        )?;
        writeln!(f, "         difference: largest {largest}, mean {mean}")?;
        let ranks = &agreement.rank_correlation;
        if ranks.requests > 0 {
            let (requests, mean, lowest) = (ranks.requests, ranks.mean, ranks.lowest);
            writeln!(
                f,
                "         rank correlation of {requests} requests: mean {mean:.4}, lowest {lowest:.4}"
            )?;
        }
        for Difference { row, user, treatment, expected, score, .. } in &agreement.worst {
            let of = [user.as_str(), treatment.as_str()].join(" ");
            let of = if of.trim().is_empty() { String::new() } else { format!(" ({})", of.trim()) };
            writeln!(f, "         row {row}{of}: {score}, expected {expected}")?;
        }
        Ok(())
    }
}
