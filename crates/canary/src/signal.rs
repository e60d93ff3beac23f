//! The signals that are watched, each with its test.

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

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Requests that are not answered.
    ErrorRate,
    /// A quantile of the latency.
    Latency,
    /// The distribution of scores.
    Scores,
    /// Answers with NaN or an infinity.
    NonFinite,
    /// Shadowed requests whose first treatments differ.
    Disagreement,
    /// Features, against the model's profile.
    Skew,
}

impl Signal {
    /// Its part of the error budget. Errors have the most: they are rare, so
    /// that each request says least about them.
    fn part(self) -> f64 {
        if self == Self::ErrorRate { 3.0 } else { 1.0 }
    }

    /// Its limits' key in a label.
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

    /// The least margin and the most. All but latencies are compared by shares. The
    /// bins that latencies are counted in tell no less than 2 % apart.
    pub(crate) fn margins(self) -> (f64, f64) {
        if self == Self::Latency { (0.021, 1000.0) } else { (0.000_001, 0.999_999) }
    }

    /// A figure of one arm, in the unit people think in.
    pub(crate) fn figure(self, value: f64) -> String {
        match self {
            Self::Latency => format!("{:.2}ms", 1e3 * value),
            Self::Scores => format!("{value:.4}"),
            Self::ErrorRate | Self::NonFinite | Self::Disagreement | Self::Skew => {
                format!("{:.3}%", 100.0 * value)
            }
        }
    }

    /// A difference between the arms.
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

/// How much evidence is needed: `ln(1 / a)`, where `a` is the probability of an
/// error that may be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    /// Of calling harm what is none, for this signal's part of the budget.
    pub(crate) harm: f64,
    /// Of calling harmless what is not. Every signal may use the whole budget:
    /// all of them must be proved harmless, and the one that is not is enough
    /// (intersection-union test, Berger 1982).
    pub(crate) harmless: f64,
}

/// A difference between the arms, in the unit of its signal, with a confidence
/// sequence's bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Difference {
    pub(crate) live: f64,
    pub(crate) canary: f64,
    pub(crate) estimate: f64,
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    pub(crate) detail: Option<String>,
}

/// What each signal does with the statistics.
pub(crate) trait Test: std::fmt::Debug + Send + Sync {
    /// Whether the difference is proved to be larger than `tolerance`.
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool;
    /// Whether it is proved to be smaller than `margin`.
    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool;
    /// The difference with its bounds: the same two questions, asked of every
    /// number.
    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference;
}

/// A signal that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) signal: Signal,
    pub(crate) limits: Limits,
    pub(crate) needed: Needed,
    test: Box<dyn Test>,
}

impl Watched {
    /// All signals of a configuration, with the budget split among them.
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

    /// Whether harm is proved, and harmlessness is not.
    pub(crate) fn harmful(&self, statistics: &Statistics) -> bool {
        self.test.exceeds(statistics, self.limits.tolerance, self.needed.harm)
            && !self.harmless(statistics)
    }

    /// Whether harmlessness is proved.
    pub(crate) fn harmless(&self, statistics: &Statistics) -> bool {
        self.test.within(statistics, self.limits.margin, self.needed.harmless)
    }

    /// The numbers, for people.
    pub(crate) fn difference(&self, statistics: &Statistics) -> Difference {
        self.test.difference(statistics, self.needed)
    }
}

/// The signals that are watched, with the tests for them.
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
