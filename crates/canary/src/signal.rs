//! The watched signals, each with its test.

mod disagreement;
mod latency;
mod non_finite;
mod rate;
mod scores;
mod skew;

use std::fmt;

use serde::Serialize;

use crate::{Config, LatencyLimits, Limits, NonFiniteLimits, SkewLimits, Statistics};
use disagreement::Disagreement;
use latency::Latency;
use non_finite::NonFinite;
use rate::Rate;
use scores::Scores;
use skew::Skew;

/// A watched signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Requests without an answer.
    ErrorRate,
    /// A quantile of the latency.
    Latency,
    /// The distribution of scores.
    Scores,
    /// Answers with NaN or an infinity.
    NonFinite,
    /// Shadowed requests for which the arms rank different treatments first.
    Disagreement,
    /// Features against the model's profile.
    Skew,
}

impl Signal {
    /// The weight of its part of the error budget. The error rate has the largest: errors
    /// are rare, so each request carries little information about them.
    fn part(self) -> f64 {
        if self == Self::ErrorRate { 3.0 } else { 1.0 }
    }

    /// The configuration key of its limits.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::ErrorRate => "signals.error_rate",
            Self::Latency => "signals.latency.limits",
            Self::Scores => "signals.score_drift",
            Self::NonFinite => "signals.non_finite.limits",
            Self::Disagreement => "signals.disagreement",
            Self::Skew => "signals.skew",
        }
    }

    /// The smallest and the largest margin. All signals but latency are differences of
    /// shares. The bins of the latency sketch are 2 % wide, so a smaller latency margin
    /// cannot be resolved.
    pub(crate) fn margins(self) -> (f64, f64) {
        if self == Self::Latency { (0.021, 1000.0) } else { (0.000_001, 0.999_999) }
    }

    /// Formats a figure of one arm with its unit.
    pub(crate) fn figure(self, value: f64) -> String {
        match self {
            Self::Latency => format!("{:.2}ms", 1e3 * value),
            Self::Scores => format!("{value:.4}"),
            Self::ErrorRate | Self::NonFinite | Self::Disagreement | Self::Skew => {
                format!("{:.3}%", 100.0 * value)
            }
        }
    }

    /// Formats a difference between the arms.
    pub(crate) fn difference(self, value: f64) -> String {
        match self {
            Self::Scores => format!("{value:.4}"),
            _ => format!("{:+.3}%", 100.0 * value),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ErrorRate => "error rate",
            Self::Latency => "latency",
            Self::Scores => "scores",
            Self::NonFinite => "non-finite",
            Self::Disagreement => "disagreement",
            Self::Skew => "skew",
        })
    }
}

/// The thresholds of log evidence: `ln(1 / a)`, where `a` is the permitted error
/// probability.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    /// For calling a harmless difference harmful; uses this signal's part of the error
    /// budget.
    pub(crate) harm: f64,
    /// For calling a harmful difference harmless. Every signal may use the whole budget:
    /// a canary is promoted only if all signals are proved harmless, so one harmful
    /// signal is enough to prevent it (intersection-union test, Berger 1982).
    pub(crate) harmless: f64,
}

/// A difference between the arms, in the unit of its signal, with the bounds of its
/// confidence sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Difference {
    pub(crate) live: f64,
    pub(crate) canary: f64,
    pub(crate) estimate: f64,
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    pub(crate) detail: Option<String>,
}

/// The sequential test of a signal.
pub(crate) trait Test: std::fmt::Debug + Send + Sync {
    /// True if the difference is proved to be larger than `tolerance`.
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool;
    /// True if the difference is proved to be smaller than `margin`.
    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool;
    /// The estimate with its bounds: the values for which `exceeds` and `within` would
    /// hold.
    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference;
}

/// A watched signal with its limits, thresholds and test.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) signal: Signal,
    pub(crate) limits: Limits,
    pub(crate) needed: Needed,
    test: Box<dyn Test>,
}

impl Watched {
    /// All watched signals of a configuration; the error budget is split among them.
    pub(crate) fn of(config: &Config) -> Vec<Self> {
        let error = 1.0 - config.confidence;
        let tests = tests(config, error);
        let parts: f64 = tests.iter().map(|(signal, ..)| signal.part()).sum();
        let watched = tests.into_iter().map(|(signal, limits, test)| {
            let harm = -(error * signal.part() / parts).ln();
            Self { signal, limits, needed: Needed { harm, harmless: -error.ln() }, test }
        });
        watched.collect()
    }

    /// True if the difference is proved harmful and is not proved harmless.
    pub(crate) fn harmful(&self, statistics: &Statistics) -> bool {
        self.test.exceeds(statistics, self.limits.tolerance, self.needed.harm)
            && !self.harmless(statistics)
    }

    /// True if the difference is proved harmless.
    pub(crate) fn harmless(&self, statistics: &Statistics) -> bool {
        self.test.within(statistics, self.limits.margin, self.needed.harmless)
    }

    /// The estimate and its bounds, for reports.
    pub(crate) fn difference(&self, statistics: &Statistics) -> Difference {
        self.test.difference(statistics, self.needed)
    }
}

/// The watched signals with their tests.
fn tests(config: &Config, error: f64) -> Vec<(Signal, Limits, Box<dyn Test>)> {
    let mut tests: Vec<(Signal, Limits, Box<dyn Test>)> = Vec::new();
    if let Some(limits) = config.error_rate {
        tests.push((Signal::ErrorRate, limits, Box::new(Rate::FAILED)));
    }
    if let Some(NonFiniteLimits { expected, limits }) = config.non_finite {
        let test: Box<dyn Test> = match expected {
            Some(expected) => Box::new(NonFinite { expected, guard: -(2.0 * error).ln() }),
            None => Box::new(Rate::NON_FINITE),
        };
        tests.push((Signal::NonFinite, limits, test));
    }
    if let Some(LatencyLimits { quantile, limits }) = config.latency {
        tests.push((Signal::Latency, limits, Box::new(Latency { quantile })));
    }
    if let Some(limits) = config.scores {
        tests.push((Signal::Scores, limits, Box::new(Scores)));
    }
    if let Some(limits) = config.disagreement {
        tests.push((Signal::Disagreement, limits, Box::new(Disagreement)));
    }
    if let Some(SkewLimits { profile, limits }) = &config.skew {
        tests.push((Signal::Skew, *limits, Box::new(Skew { profile: profile.clone() })));
    }
    tests
}
