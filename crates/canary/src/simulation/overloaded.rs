//! The report of a trial on a shared engine.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};

use super::report::written;
use crate::Conclusion;

/// The course of a trial on an engine that both arms share.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Overloaded {
    /// The conclusion; `None` without one.
    #[serde(skip)]
    pub conclusion: Option<Conclusion>,
    /// The reason of the conclusion; empty without one.
    pub reason: String,
    /// Time from the split to the conclusion, or to the end without one.
    #[serde(rename = "elapsed_seconds", serialize_with = "as_seconds")]
    pub elapsed: Duration,
    /// Requests since the split, and in some seconds after the conclusion.
    pub callers: u64,
    /// Those that live failed, or that had no answer at their deadline.
    pub failed: u64,
    /// Requests on the canary that the comparison counted.
    pub canary: u64,
    /// Requests assigned to the canary that live answered, because as many calls of the
    /// canary were in flight as may be.
    pub left_to_live: u64,
    /// The number of times that the canary's requests were stopped, because live was far
    /// worse than before the split.
    pub pauses: u64,
    /// Seconds in which more than one in a hundred of live's requests failed or took more
    /// than twice the 99th percentile before the split.
    pub slow_seconds: u64,
}

impl Overloaded {
    /// The share of the callers that got no answer.
    pub fn failed_share(&self) -> f64 {
        self.failed as f64 / self.callers.max(1) as f64
    }
}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = if self.reason.is_empty() { "no conclusion" } else { &self.reason };
        let (elapsed, failed) = (written(self.elapsed), 100.0 * self.failed_share());
        let Self { canary, left_to_live, callers, pauses, slow_seconds, .. } = self;
        writeln!(f, "{reason}")?;
        writeln!(
            f,
            "  after {elapsed}, {canary} requests on the canary, {left_to_live} left to live, \
             {pauses} pauses"
        )?;
        writeln!(f, "  {failed:.2}% of {callers} callers failed")?;
        writeln!(
            f,
            "  for {slow_seconds}s live's 99th percentile was above twice that before the split"
        )
    }
}

fn as_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}
