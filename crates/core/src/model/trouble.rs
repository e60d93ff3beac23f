//! Remembered failures, and the times of the next attempts.

use super::{Fault, ModelMachine, Slot};
use crate::{Context, Failure, Moment, Reason};

/// A remembered failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// The failure.
    pub failure: Failure,
    /// The time of the failure.
    pub at: Moment,
    /// Failures in a row.
    pub failures: u32,
    /// The time of the next attempt; `None` if it has to wait for a change.
    pub retry_at: Option<Moment>,
}

impl ModelMachine {
    /// True if no failure is remembered, or the next attempt is due.
    pub fn may_try(&self, now: Moment) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.retry_at.is_some_and(|at| at <= now))
    }

    pub(super) fn fail(&mut self, c: &Context<'_>, failure: Failure) {
        let failures = self.trouble.as_ref().map_or(0, |trouble| trouble.failures) + 1;
        let backoff = match self.slot {
            // Each attempt takes the version that serves out of the engine.
            Slot::Replacing => c.policy.replace_backoff,
            _ => c.policy.backoff,
        };
        let delay = || backoff.delay(failures, c.jitter, failure.retry_after);
        let retry_at = (!is_permanent(failure.reason)).then(|| c.now + delay());
        self.trouble = Some(Trouble { failure, at: c.now, failures, retry_at });
    }
}

/// Whether a failure lasts until something changes: another digest, or a request by an operator for
/// another attempt.
pub(crate) fn is_permanent(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ModelNotFound
            | Reason::TagNotFound
            | Reason::DigestNotFound
            | Reason::ImageNotAllowed
            | Reason::ImageInvalid
            | Reason::GoldenMismatch
            | Reason::EngineNotChosen
            | Reason::ModelQuarantined
    )
}

impl Fault {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::FilesMissing => {
                Failure::new(Reason::Internal, "the files vanished while they were pulled")
            }
        }
    }
}
