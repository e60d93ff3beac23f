//! What the judge says, and why.

use std::{fmt, time::Duration};

use serde::Serialize;

use crate::signal::Signal;

/// What is to be done with the canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Not known yet.
    Continue,
    /// It is no worse than the margins allow: it may be live.
    Promote,
    /// It does harm.
    Rollback,
    /// There is too little traffic to decide in the time there is.
    Starved,
}

/// A decision with the figures it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What is to be done.
    pub decision: Decision,
    /// How long the canary was on trial.
    #[serde(rename = "elapsed_seconds", serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Requests that live was assigned.
    pub live: u64,
    /// Requests that the canary was assigned.
    pub canary: u64,
    /// What each signal shows.
    pub findings: Vec<Finding>,
    /// Whether the arms are as large as they should be.
    pub sample_ratio: SampleRatio,
}

/// What a signal shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Which signal.
    pub signal: Signal,
    /// What is proved.
    pub state: State,
    /// Live's figure: a rate, a latency in seconds, the median of the scores,
    /// the share in the profile.
    pub live: f64,
    /// The canary's.
    pub canary: f64,
    /// The difference as the signal defines it.
    pub difference: f64,
    /// The difference is no less than this,
    pub lower: f64,
    /// and no more than this; infinite, and null in JSON, if nothing is known.
    pub upper: f64,
    /// The difference above which there is harm.
    pub tolerance: f64,
    /// The difference below which there is none.
    pub margin: f64,
    /// Where it is, for signals that look at several places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The canary's share of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SampleRatio {
    /// What was drawn by.
    pub expected: f64,
    /// What came of it.
    pub seen: f64,
    /// Whether that can be chance.
    pub fits: bool,
}

/// What is proved of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing yet.
    Open,
    /// Within its margin.
    Harmless,
    /// Beyond its tolerance.
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

/// The decision with its reason, in a line.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.decision)?;
        let telling = match self.decision {
            Decision::Promote => return f.write_str(": every signal is within its margin"),
            Decision::Rollback => State::Harmful,
            Decision::Continue | Decision::Starved => State::Open,
        };
        let mut separator = ": ";
        for finding in self.findings.iter().filter(|finding| finding.state == telling) {
            write!(f, "{separator}{finding}")?;
            separator = "; ";
        }
        Ok(())
    }
}

/// What a signal shows, in the units people think in.
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
