//! The failures of runs.

use outrigger_core::{Failure, Reason};
use outrigger_validation::{Error, Problem};

use crate::routing;

/// The failure of a run that ended without a report.
pub(super) fn of(error: Error) -> Failure {
    let (field, error) = match error {
        Error::Failed(failure) => return failure,
        Error::Input(error) => ("input", error),
        Error::Scores(error) => ("scores", error),
    };
    let message = error.to_string();
    match error.problem {
        Problem::NotFound => Failure::new(Reason::FileNotFound, message),
        Problem::Exists => Failure::new(Reason::FileExists, message),
        Problem::TooLarge => Failure::new(Reason::TooLarge, message),
        Problem::Path => routing::invalid(field, &message),
        Problem::Other => Failure::new(Reason::FileInvalid, message),
    }
}
