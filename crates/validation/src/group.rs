//! Rows that are scored by one request.

use outrigger_core::{Failure, Reason};
use outrigger_tables::Cell;

use crate::text::cut;

/// The rows of one request, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// The encoded `outrigger.v1.PredictRequest`, without a model; empty if no row can be scored.
    pub(crate) request: Vec<u8>,
    /// The number of treatments in the request.
    pub(crate) treatments: usize,
    /// The rows. In the row form, those without a failure are the request's treatments, in order.
    pub(crate) rows: Vec<GroupRow>,
}

/// A row of a group.
#[derive(Debug, Default)]
pub(crate) struct GroupRow {
    /// The number of the row in the file.
    pub(crate) number: u64,
    /// The reserved columns.
    pub(crate) user: Cell,
    pub(crate) treatment: Cell,
    pub(crate) expected: Cell,
    /// True if the row stands for all treatments of its request.
    pub(crate) is_list: bool,
    /// The reason why the row cannot be scored.
    pub(crate) failure: Option<Failure>,
    /// True if the failure is that of an earlier row too, with which it counts once.
    pub(crate) shares_failure: bool,
}

impl Group {
    /// A group with one row, which cannot be scored.
    pub(crate) fn failed(row: GroupRow, failure: Failure) -> Self {
        let rows = vec![GroupRow { failure: Some(failure), ..row }];
        Self { rows, ..Self::default() }
    }

    /// The bytes of the request and of the reserved columns, about.
    pub(crate) fn bytes(&self) -> usize {
        self.request.len() + self.rows.iter().map(GroupRow::bytes).sum::<usize>()
    }

    /// True if there is a request to send.
    pub(crate) fn is_sent(&self) -> bool {
        !self.request.is_empty()
    }
}

impl GroupRow {
    /// The bytes of the reserved columns, about.
    pub(crate) fn bytes(&self) -> usize {
        [&self.user, &self.treatment, &self.expected].into_iter().map(Cell::bytes).sum()
    }
}

/// Gives the rows without a failure this one.
pub(crate) fn fail_all(rows: &mut [GroupRow], failure: &Failure) {
    let unfailed = rows.iter_mut().filter(|row| row.failure.is_none());
    for (at, row) in unfailed.enumerate() {
        row.failure = Some(failure.clone());
        row.shares_failure = at > 0;
    }
}

/// The failure of a row that is not of the required form.
pub(crate) fn malformed(message: impl Into<String>) -> Failure {
    Failure::new(Reason::RequestMalformed, cut(message.into()))
}
