//! Configuration of the judge: the watched signals and their limits.

use std::{sync::Arc, time::Duration};

use crate::{Profile, Signal};

/// The watched signals, their limits, and when the judge may decide.
///
/// At most `1 - confidence` of the canaries that are in no way worse than live are ever
/// rolled back. At most as many of those that are worse than a signal's margin are
/// promoted.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Confidence of both kinds of verdict; above 0.5 and below 1.
    pub confidence: f64,
    /// Share of requests without an answer; compared by the difference of the rates.
    pub error_rate: Option<Limits>,
    /// Latency at a quantile; compared by the relative increase over live's.
    pub latency: Option<LatencyLimits>,
    /// Distribution of scores; compared by the largest difference of the two cumulative
    /// distributions (Kolmogorov-Smirnov distance).
    pub scores: Option<Limits>,
    /// Share of answers with NaN or an infinity; compared by the difference of the rates.
    pub non_finite: Option<NonFiniteLimits>,
    /// Share of shadowed requests for which the arms rank different treatments first.
    pub disagreement: Option<Limits>,
    /// Features of the canary's requests against its profile; compared by the largest
    /// difference of a category's share.
    pub skew: Option<SkewLimits>,
    /// Requests that must be assigned to the canary before it may be promoted.
    pub minimum_requests: u64,
    /// Time that the canary must be on trial before it may be promoted.
    pub minimum_time: Duration,
    /// Time after which a canary without a verdict has starved.
    pub maximum_time: Duration,
}

/// Bounds on a signal's difference, in the unit of the signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// A difference that is proved to be larger is harmful.
    pub tolerance: f64,
    /// A difference that is proved to be smaller is harmless, even if it is larger than
    /// the tolerance.
    pub margin: f64,
}

/// [`Limits`] of a latency quantile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyLimits {
    /// The quantile, between 0 and 1.
    pub quantile: f64,
    /// Relative increase over live: 0.1 is a tenth longer.
    pub limits: Limits,
}

/// [`Limits`] of the rate of non-finite answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFiniteLimits {
    /// Upper bound on live's rate that is assumed to be known: fewer non-finite answers
    /// then prove harm. If live's rate is higher, up to `2 (1 - confidence)` of the
    /// canaries that equal live are rolled back wrongly. `None` assumes nothing.
    pub expected: Option<f64>,
    /// Compared with the difference of the rates.
    pub limits: Limits,
}

/// [`Limits`] of the features' skew.
#[derive(Debug, Clone, PartialEq)]
pub struct SkewLimits {
    /// The canary's profile.
    pub profile: Arc<Profile>,
    /// Compared with the difference of the shares.
    pub limits: Limits,
}

impl Limits {
    /// Describes the first invalid limit, if any, given the bounds of `signal`.
    pub(crate) fn problem(self, signal: Signal) -> Option<String> {
        let (Self { tolerance, margin }, key) = (self, signal.key());
        let (least, most) = signal.margins();
        if !(least..=most).contains(&margin) {
            Some(format!("{key}.margin: must be from {least} to {most}, not {margin}"))
        } else if !(0.0..=margin).contains(&tolerance) {
            Some(format!("{key}.tolerance: must be from 0 to the margin {margin}, not {tolerance}"))
        } else {
            None
        }
    }
}

impl Config {
    /// The longest trial: a year.
    pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    /// The latency quantile that is watched; the 95th percentile if latency is not
    /// watched.
    pub fn quantile(&self) -> f64 {
        self.latency.map_or(0.95, |latency| latency.quantile)
    }

    /// All problems, each with its configuration key.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let confidence = self.confidence;
        require(
            confidence > 0.5 && confidence < 1.0,
            format!("confidence: must be above 0.5 and below 1, not {confidence}"),
        );
        for (signal, limits) in self.limits() {
            let problem = limits.problem(signal);
            require(problem.is_none(), problem.unwrap_or_default());
        }
        let quantile = self.quantile();
        require(
            quantile > 0.0 && quantile < 1.0,
            format!("signals.latency.quantile: must be above 0 and below 1, not {quantile}"),
        );
        let expected = self.non_finite.and_then(|non_finite| non_finite.expected).unwrap_or(0.5);
        require(
            expected > 0.0 && expected < 1.0,
            format!("signals.non_finite.expected: must be above 0 and below 1, not {expected}"),
        );
        let (minimum, maximum) = (self.minimum_time, self.maximum_time);
        require(
            maximum > Duration::ZERO && maximum <= Self::LONGEST,
            format!("maximum_time: must be above 0s and at most {:?}", Self::LONGEST),
        );
        require(
            minimum <= maximum,
            format!("minimum_time: {minimum:?} is longer than maximum_time, {maximum:?}"),
        );
        problems
    }

    /// True if any signal is watched. Signals that are not watched cannot fail, so a
    /// judge without signals would promote every canary.
    pub fn watches(&self) -> bool {
        self.limits().next().is_some()
    }

    /// The watched signals with their limits.
    fn limits(&self) -> impl Iterator<Item = (Signal, Limits)> {
        let signals = [
            (Signal::ErrorRate, self.error_rate),
            (Signal::Latency, self.latency.map(|latency| latency.limits)),
            (Signal::Scores, self.scores),
            (Signal::NonFinite, self.non_finite.map(|non_finite| non_finite.limits)),
            (Signal::Disagreement, self.disagreement),
            (Signal::Skew, self.skew.as_ref().map(|skew| skew.limits)),
        ];
        signals.into_iter().filter_map(|(signal, limits)| Some((signal, limits?)))
    }
}

impl Default for Config {
    fn default() -> Self {
        let margin = |margin| Limits { tolerance: 0.0, margin };
        Self {
            confidence: 0.99,
            error_rate: Some(margin(0.005)),
            latency: Some(LatencyLimits { quantile: 0.95, limits: margin(0.1) }),
            scores: Some(margin(0.05)),
            non_finite: Some(NonFiniteLimits { expected: Some(1e-5), limits: margin(0.001) }),
            disagreement: None,
            skew: None,
            minimum_requests: 1000,
            minimum_time: Duration::from_secs(10 * 60),
            maximum_time: Duration::from_secs(24 * 3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_no_problems() {
        assert_eq!(Config::default().problems(), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_reported() {
        let config = Config {
            confidence: 1.0,
            error_rate: Some(Limits { tolerance: 0.2, margin: 0.1 }),
            latency: Some(LatencyLimits {
                quantile: 95.0,
                limits: Limits { tolerance: 0.0, margin: f64::NAN },
            }),
            scores: None,
            minimum_time: Duration::MAX,
            ..Config::default()
        };
        let problems = config.problems().join("; ");
        for expected in [
            "confidence",
            "error_rate.tolerance",
            "latency.limits.margin",
            "latency.quantile",
            "minimum_time",
        ] {
            assert!(problems.contains(expected), "{expected} in {problems}");
        }
        assert_eq!(config.problems().len(), 5);
    }
}
