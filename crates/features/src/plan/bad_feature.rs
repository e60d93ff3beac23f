//! A feature whose value is refused, and the failures that report it.

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::TreatmentError;

use crate::{column::Problem, place::Place};

/// The maximum number of characters of a treatment's id in a message.
const QUOTED: usize = 80;

/// A feature that could not be packed, with the reason.
#[derive(Debug)]
pub(crate) struct BadFeature<'p> {
    pub(crate) feature: &'p str,
    pub(crate) problem: Problem,
}

/// The result of writing a row.
pub(crate) type RowResult<'p> = Result<(), Vec<BadFeature<'p>>>;

impl BadFeature<'_> {
    /// The failure of a user's row.
    pub(crate) fn of_user(self, place: &Place) -> Failure {
        let path = format!("user[{:?}]", self.feature);
        place.failure(self.problem.reason, path, self.problem.message)
    }

    /// The failure of a treatment's row; `path` makes the path in the request of a feature.
    pub(crate) fn of_treatment(
        self,
        index: usize,
        id: &[u8],
        path: impl Fn(&str) -> String,
        place: &Place,
    ) -> Failure {
        let id: String = String::from_utf8_lossy(id).chars().take(QUOTED).collect();
        let id = if id.is_empty() { String::new() } else { format!(", id {id:?}") };
        let message = format!("{} (treatment {index}{id})", self.problem.message);
        place.failure(self.problem.reason, path(self.feature), message)
    }
}

/// The entry of the response for a treatment that was left out, because of the first of its bad
/// features.
pub(crate) fn left_out(
    bad: Vec<BadFeature<'_>>,
    index: usize,
    id: &[u8],
) -> Option<TreatmentError> {
    let BadFeature { feature, problem } = bad.into_iter().next()?;
    let reason: Reason = problem.reason;
    Some(TreatmentError {
        index: u32::try_from(index).expect("treatments are limited"),
        id: String::from_utf8_lossy(id).into_owned(),
        reason: reason.as_str().to_owned(),
        message: problem.message,
        feature: feature.to_owned(),
    })
}
