//! What is watched, and how much of a difference is too much.

use std::{sync::Arc, time::Duration};

use crate::{Profile, Signal};

/// What is watched, and when the judge has seen enough.
///
/// Of a canary that is in no way worse than live, at most `1 - confidence` are ever
/// rolled back. Of one that is worse than a signal's margin, at most as many are
/// promoted.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Of both kinds of verdict; above 0.5 and below 1.
    pub confidence: f64,
    /// Share of requests that are not answered; a difference of rates.
    pub error_rate: Option<Limits>,
    /// Latency at a quantile; by how much of live's it is longer.
    pub latency: Option<LatencyLimits>,
    /// Distribution of scores; the largest difference of the two cumulative
    /// distributions (Kolmogorov-Smirnov distance).
    pub scores: Option<Limits>,
    /// Share of answers with NaN or an infinity; a difference of rates.
    pub non_finite: Option<NonFiniteLimits>,
    /// Share of shadowed requests for which the arms put different treatments
    /// first.
    pub disagreement: Option<Limits>,
    /// Features of the canary's requests, against its profile; the largest
    /// difference of a category's share.
    pub skew: Option<SkewLimits>,
    /// Nothing is promoted before the canary was assigned so many requests.
    pub minimum_requests: u64,
    /// Nothing is promoted before it was on trial for so long.
    pub minimum_time: Duration,
    /// Without a verdict by then the canary has starved.
    pub maximum_time: Duration,
}

/// Where harm begins and where harmlessness ends, in the unit of the signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// A difference that is proved to be larger is harm.
    pub tolerance: f64,
    /// A difference that is proved to be smaller is harmless, and then is no
    /// harm even if it is larger than the tolerance.
    pub margin: f64,
}

/// [`Limits`] of a latency quantile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyLimits {
    /// Which quantile, between 0 and 1.
    pub quantile: f64,
    /// 0.1 is a tenth longer than live.
    pub limits: Limits,
}

/// [`Limits`] of the rate of non-finite answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFiniteLimits {
    /// Live's rate is known to be at most this: fewer such answers then are
    /// enough. Where live has more, up to `2 (1 - confidence)` of the canaries like
    /// it are rolled back for that. `None` assumes nothing.
    pub expected: Option<f64>,
    /// A difference of rates.
    pub limits: Limits,
}

/// [`Limits`] of the features' skew.
#[derive(Debug, Clone, PartialEq)]
pub struct SkewLimits {
    /// The canary's profile.
    pub profile: Arc<Profile>,
    /// A difference of shares.
    pub limits: Limits,
}

impl Limits {
    /// What is wrong with them, if they are that signal's.
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
    /// No trial lasts longer: a year.
    pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    /// The latency quantile that is watched; the 95th percentile if none is.
    pub fn quantile(&self) -> f64 {
        self.latency.map_or(0.95, |latency| latency.quantile)
    }

    /// All that is wrong with it.
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

    /// Whether it watches anything. What is not watched cannot be wrong, so that a
    /// judge of nothing would promote everything.
    pub fn watches(&self) -> bool {
        self.limits().next().is_some()
    }

    /// The signals that are watched, with their limits.
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
    fn all_problems_are_told() {
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
