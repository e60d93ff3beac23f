//! What the judge is told of each request.

use std::time::Duration;

use outrigger_core::Arm;

/// One request that was split between live and canary, by the arm it was
/// assigned to. A canary that failed and was stood in for by live is a failure
/// of the canary. Of the requests of one routing key only the first may count
/// ([`Exposures`](crate::Exposures)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The assigned arm; [`Arm::Pinned`] is not part of the comparison.
    pub arm: Arm,
    /// From the request's arrival to its answer, or to its failure.
    pub latency: Duration,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// No answer: an error of the model or the engine, or a timeout. What the
    /// caller did wrong is no outcome.
    Failed,
    /// An answer with NaN or an infinity among its scores.
    NonFinite,
    /// An answer, with one finite score that stands for it: scores of one
    /// request hang together, so that only one of them may count.
    Scored(f64),
    /// An answer without scores: no treatments were asked about.
    Empty,
}

impl Outcome {
    /// The outcome of an answer that `score` stands for.
    pub fn of_score(score: f64) -> Self {
        if score.is_finite() { Self::Scored(score) } else { Self::NonFinite }
    }
}

/// The same request answered by both arms: live's answer was served, the
/// canary's was only compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Both put the same treatment first.
    pub same_top: bool,
    /// The canary's score less live's, of the treatment that live puts first;
    /// `None` if either has no finite one.
    pub difference: Option<f64>,
}
