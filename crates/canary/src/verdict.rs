//! The judge's verdict with its reasons.

use std::{fmt, time::Duration};

use serde::Serialize;

use crate::signal::Signal;

/// The judge's decision on a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Undecided so far.
    Continue,
    /// Every signal is within its margin, and the arms' sizes fit the share: the canary may
    /// become live.
    Promote,
    /// The canary is harmful.
    Rollback,
    /// No decision is possible by the maximum time: too few requests count, or the
    /// arms' sizes do not fit the share.
    Starved,
}

/// A decision with the figures that it rests on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// Time on trial.
    #[serde(rename = "elapsed_seconds", serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Requests assigned to live.
    pub live: u64,
    /// Requests assigned to the canary.
    pub canary: u64,
    /// The finding of each signal.
    pub findings: Vec<Finding>,
    /// Expected and observed sizes of the arms.
    pub sample_ratio: SampleRatio,
}

/// The finding of one signal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The signal.
    pub signal: Signal,
    /// The proved state.
    pub state: State,
    /// Live's figure: a rate, a latency in seconds, the median of the scores, or the
    /// share in the profile.
    pub live: f64,
    /// The canary's figure, in the same unit.
    pub canary: f64,
    /// The estimated difference, as the signal defines it.
    pub difference: f64,
    /// The lower bound of the difference.
    pub lower: f64,
    /// The upper bound of the difference; infinite, and null in JSON, if nothing is
    /// known.
    pub upper: f64,
    /// The difference above which the canary is harmful.
    pub tolerance: f64,
    /// The difference below which it is harmless.
    pub margin: f64,
    /// The place of the difference, for signals that test several places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The canary's share of the requests, for the test of a sample-ratio mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SampleRatio {
    /// The drawn share.
    pub expected: f64,
    /// The observed share.
    pub seen: f64,
    /// True if chance can explain the deviation.
    pub fits: bool,
}

/// The proved state of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Undecided.
    Open,
    /// The difference is within its margin.
    Harmless,
    /// The difference exceeds its tolerance.
    Harmful,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Continue => "continue",
            Self::Promote => "promote",
            Self::Rollback => "rollback",
            Self::Starved => "starved",
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Harmless => "harmless",
            Self::Harmful => "harmful",
        })
    }
}

/// The decision with its reason, on one line.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.decision)?;
        let decisive = match self.decision {
            Decision::Promote => return f.write_str(": every signal is within its margin"),
            Decision::Rollback => State::Harmful,
            Decision::Continue | Decision::Starved => State::Open,
        };
        let mut separator = ": ";
        if decisive == State::Open && !self.sample_ratio.fits {
            write!(f, "{separator}{}", self.sample_ratio)?;
            separator = "; ";
        }
        for finding in self.findings.iter().filter(|finding| finding.state == decisive) {
            write!(f, "{separator}{finding}")?;
            separator = "; ";
        }
        Ok(())
    }
}

/// Both shares.
impl fmt::Display for SampleRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seen, expected) = (100.0 * self.seen, 100.0 * self.expected);
        write!(f, "the canary had {seen:.2}% of the requests, not {expected:.2}%")
    }
}

/// The finding with its figures in their usual units.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = self.signal;
        write!(f, "{signal} ")?;
        if let Some(detail) = &self.detail {
            write!(f, "({detail}) ")?;
        }
        write!(f, "{} against {}, ", signal.figure(self.canary), signal.figure(self.live))?;
        let [estimate, lower, upper, margin] =
            [self.difference, self.lower, self.upper, self.margin]
                .map(|value| signal.difference(value));
        write!(f, "difference {estimate} in [{lower}, {upper}], margin {margin}")
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
