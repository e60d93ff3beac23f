//! The judge's input for each request.

use std::time::Duration;

use outrigger_core::Arm;

/// One request that was split between live and canary, with the arm that it was assigned
/// to. If the canary failed and live answered instead, it is a failure of the canary.
/// Only the first request of a routing key may be recorded
/// ([`Exposures`](crate::Exposures)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The assigned arm; [`Arm::Pinned`] is not part of the comparison.
    pub arm: Arm,
    /// Time from the request's arrival to its answer or failure; `None` if it cannot be
    /// compared between the arms, because it depends on the arm even if both versions are
    /// alike.
    pub latency: Option<Duration>,
    /// The request's outcome.
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// No answer: an error of the model or the engine, or a timeout. Errors of the caller
    /// are not recorded.
    Failed,
    /// An answer with NaN or an infinity among its scores.
    NonFinite,
    /// An answer, with one finite score that represents it: scores of one request are
    /// correlated, so only one of them may count.
    Scored(f64),
    /// An answer without scores: the request named no treatments.
    Empty,
}

impl Outcome {
    /// The outcome of an answer that is represented by `score`.
    pub fn of_score(score: f64) -> Self {
        if score.is_finite() { Self::Scored(score) } else { Self::NonFinite }
    }
}

/// One request answered by both arms: live's answer was served, the canary's was only
/// compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// True if both rank the same treatment first.
    pub same_top: bool,
    /// The canary's score less live's, for the treatment that live ranks first; `None` if
    /// either score is not finite.
    pub difference: Option<f64>,
}
