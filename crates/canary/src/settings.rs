//! Settings of one trial.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use outrigger_proto::outrigger::v1::{ModelCanaryConfig, model_canary_config as wire};
use prost_types::Duration as WireDuration;

use crate::{
    Config, InvalidShare, LatencyLimits, Limits, NonFiniteLimits, Profile, Reference, Share,
    Signal, SkewLimits,
};

/// Settings of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The signals, limits and times of the judge.
    pub judge: Config,
    /// The canary's share over time.
    pub ramp: Ramp,
    /// The measurement of live before the split.
    pub warm_up: WarmUp,
    /// The action for a canary that may be promoted.
    pub mode: Mode,
    /// The action for a canary that has starved.
    pub on_starved: OnStarved,
    /// Share, from 0 to 1, of live's requests that are shadowed: the canary answers them
    /// too, for comparison.
    pub shadow: f64,
    /// Limits on the skew of features against the canary's profile, if that is watched.
    pub skew: Option<Limits>,
}

/// A canary's share of the traffic over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Ramp {
    /// The steps in order; at least one.
    Steps(Vec<Step>),
    /// The share doubles with the evidence.
    Evidence {
        /// The first share.
        first: Share,
        /// The largest share.
        most: Share,
        /// Canary requests without a detected difference that are required before each
        /// doubling.
        requests: u64,
    },
}

/// A share with the least time and requests that it is held for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The canary's share.
    pub share: Share,
    /// The least time before the next step or the promotion.
    pub time: Duration,
    /// The fewest canary requests before the next step or the promotion.
    pub requests: u64,
}

/// The measurement of live before the split; it ends at whichever limit is reached first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// Requests that end the warm-up, from [`Reference::LEAST`] to [`Reference::MOST`].
    pub requests: u64,
    /// Time that ends the warm-up once there are [`Reference::LEAST`] requests.
    pub time: Duration,
}

/// The action for a canary that may be promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Move the live tag in the registry.
    Registry,
    /// Report a recommendation only.
    Recommend,
    /// Serve the canary as live in this process only.
    Local,
}

/// The action for a canary that cannot be decided in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStarved {
    /// Roll the canary back.
    Rollback,
    /// Promote the canary.
    Promote,
    /// Continue the trial.
    Continue,
}

/// All problems of a canary's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSettings(pub Vec<String>);

impl InvalidSettings {
    pub(crate) fn one(problem: String) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for InvalidSettings {}

impl Settings {
    /// The settings for a model that samples its answers: two of its answers to one
    /// request differ anyway, so only signals that compare distributions are kept.
    ///
    /// # Errors
    /// No such signal is watched.
    pub fn of_distributions(self) -> Result<Self, InvalidSettings> {
        let judge = Config { disagreement: None, ..self.judge };
        if !judge.watches() {
            let problem = "signals: a model that samples its answers needs a watched signal that \
                           compares distributions";
            return Err(InvalidSettings::one(problem.to_owned()));
        }
        Ok(Self { shadow: 0.0, judge, ..self })
    }

    /// Adds the canary's profile to the skew signal, if that is watched.
    ///
    /// # Errors
    /// Skew is watched and there is no profile.
    pub fn against(mut self, profile: Option<Arc<Profile>>) -> Result<Self, InvalidSettings> {
        let Some(limits) = self.skew else { return Ok(self) };
        let Some(profile) = profile else {
            let problem = "signals.skew: the image has no profile.json to compare with";
            return Err(InvalidSettings::one(problem.to_owned()));
        };
        self.judge.skew = Some(SkewLimits { profile, limits });
        Ok(self)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::try_from(&ModelCanaryConfig::default()).expect("the defaults are valid")
    }
}

impl TryFrom<&ModelCanaryConfig> for Settings {
    type Error = InvalidSettings;

    /// # Errors
    /// All problems, with their keys.
    fn try_from(config: &ModelCanaryConfig) -> Result<Self, InvalidSettings> {
        let mut problems = Problems::default();
        let signals = config.signals.unwrap_or_default();
        let judge = judge(config, &mut problems);
        let settings = Self {
            ramp: ramp(config.ramp.as_ref(), judge.maximum_time, &mut problems),
            judge,
            warm_up: warm_up(config.warm_up.unwrap_or_default(), &mut problems),
            mode: match config.mode() {
                wire::Mode::Unspecified | wire::Mode::Registry => Mode::Registry,
                wire::Mode::Recommend => Mode::Recommend,
                wire::Mode::Local => Mode::Local,
            },
            on_starved: match config.on_starved() {
                wire::OnStarved::Unspecified | wire::OnStarved::Rollback => OnStarved::Rollback,
                wire::OnStarved::Promote => OnStarved::Promote,
                wire::OnStarved::Continue => OnStarved::Continue,
            },
            shadow: config.shadow(),
            skew: watched(signals.skew, USUAL_SKEW),
        };
        problems.shadow(&settings);
        problems.0.extend(settings.skew.and_then(|limits| limits.problem(Signal::Skew)));
        problems.0.extend(settings.judge.problems());
        if !settings.judge.watches() && settings.skew.is_none() {
            problems.0.push("signals: none is watched".to_owned());
        }
        if problems.0.is_empty() { Ok(settings) } else { Err(InvalidSettings(problems.0)) }
    }
}

fn judge(config: &ModelCanaryConfig, problems: &mut Problems) -> Config {
    let usual = Config::default();
    let signals = config.signals.unwrap_or_default();
    let latency = signals.latency.unwrap_or_default();
    let usual_latency = usual.latency.expect("the default watches latency");
    let non_finite = signals.non_finite.unwrap_or_default();
    let usual_non_finite = usual.non_finite.expect("the default watches non-finite answers");
    Config {
        confidence: config.confidence.unwrap_or(usual.confidence),
        error_rate: limits(signals.error_rate, usual.error_rate),
        latency: limits(latency.limits, Some(usual_latency.limits)).map(|limits| LatencyLimits {
            quantile: latency.quantile.unwrap_or(usual_latency.quantile),
            limits,
        }),
        scores: limits(signals.score_drift, usual.scores),
        non_finite: limits(non_finite.limits, Some(usual_non_finite.limits)).map(|limits| {
            NonFiniteLimits { expected: non_finite.expected.or(usual_non_finite.expected), limits }
        }),
        disagreement: watched(signals.disagreement, USUAL_DISAGREEMENT),
        // Set by `Settings::against` once the profile is known.
        skew: None,
        minimum_requests: config.minimum_requests.unwrap_or(usual.minimum_requests),
        minimum_time: problems.time("minimum_time", config.minimum_time, usual.minimum_time),
        maximum_time: problems.time("maximum_time", config.maximum_time, usual.maximum_time),
    }
}

fn warm_up(given: wire::WarmUp, problems: &mut Problems) -> WarmUp {
    let requests = given.requests.unwrap_or(Reference::REQUESTS as u64);
    let (least, most) = (Reference::LEAST as u64, Reference::MOST as u64);
    if !(least..=most).contains(&requests) {
        let problem = format!("warm_up.requests: must be from {least} to {most}, not {requests}");
        problems.0.push(problem);
    }
    let time = problems.time("warm_up.time", given.time, Duration::from_secs(60));
    WarmUp { requests, time }
}

/// A signal's limits with defaults filled in; `None` if the signal is off.
fn limits(given: Option<wire::Limits>, usual: Option<Limits>) -> Option<Limits> {
    let Some(given) = given else { return usual };
    if given.off() {
        return None;
    }
    let usual = usual?;
    Some(Limits {
        tolerance: given.tolerance.unwrap_or(usual.tolerance),
        margin: given.margin.unwrap_or(usual.margin),
    })
}

/// The limits of a signal that is watched only if it is named.
fn watched(given: Option<wire::Limits>, usual: Limits) -> Option<Limits> {
    given.and_then(|given| limits(Some(given), Some(usual)))
}

/// Default limits of skew.
const USUAL_SKEW: Limits = Limits { tolerance: 0.05, margin: 0.1 };
/// Default limits of disagreement: retraining a model changes some first treatments.
const USUAL_DISAGREEMENT: Limits = Limits { tolerance: 0.1, margin: 0.2 };
/// Default share of the canary.
const USUAL_SHARE: f64 = 0.1;
/// Default number of canary requests before the share doubles.
const USUAL_EVIDENCE: u64 = 500;

/// Upper limit of steps: each step has its own statistics.
const MOST_STEPS: usize = 100;

fn ramp(given: Option<&wire::Ramp>, maximum_time: Duration, problems: &mut Problems) -> Ramp {
    let constant = |share| Ramp::Steps(vec![Step { share, time: Duration::ZERO, requests: 0 }]);
    match given.and_then(|ramp| ramp.kind.as_ref()) {
        None => constant(problems.share("ramp.share", USUAL_SHARE)),
        Some(wire::ramp::Kind::Share(share)) => constant(problems.share("ramp.share", *share)),
        Some(wire::ramp::Kind::Steps(steps)) => {
            Ramp::Steps(problems.steps(&steps.steps, maximum_time))
        }
        Some(wire::ramp::Kind::Evidence(evidence)) => {
            let first = problems.share("ramp.evidence.first", evidence.first);
            let most = problems.share("ramp.evidence.most", evidence.most);
            if evidence.most < evidence.first {
                let below = format!("{} is below first, {}", evidence.most, evidence.first);
                problems.0.push(format!("ramp.evidence.most: {below}"));
            }
            let requests = if evidence.requests == 0 { USUAL_EVIDENCE } else { evidence.requests };
            Ramp::Evidence { first, most, requests }
        }
    }
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn share(&mut self, key: &str, share: f64) -> Share {
        let usual = || Share::new(USUAL_SHARE).expect("between 0 and 1");
        Share::new(share).unwrap_or_else(|error: InvalidShare| {
            self.0.push(format!("{key}: {error}"));
            usual()
        })
    }

    fn time(&mut self, key: &str, given: Option<WireDuration>, usual: Duration) -> Duration {
        let Some(given) = given else { return usual };
        let (longest, seconds) = (Config::LONGEST, given.seconds as f64);
        // Avoids an overflow in the conversion of a duration far beyond the limit.
        let near = given.seconds.unsigned_abs() <= longest.as_secs();
        let time = near.then(|| Duration::try_from(given).ok()).flatten();
        time.filter(|time| *time <= longest).unwrap_or_else(|| {
            let seconds = seconds + f64::from(given.nanos) / 1e9;
            self.0.push(format!("{key}: must be from 0s to {longest:?}, not {seconds}s"));
            usual
        })
    }

    fn shadow(&mut self, settings: &Settings) {
        let shadow = settings.shadow;
        if !(0.0..=1.0).contains(&shadow) {
            self.0.push(format!("shadow: must be from 0 to 1, not {shadow}"));
        } else if settings.judge.disagreement.is_some() && shadow == 0.0 {
            self.0.push("signals.disagreement: needs a shadow above 0".to_owned());
        }
    }

    /// Reads the steps of a ramp. They must fit into the time of the trial.
    fn steps(&mut self, given: &[wire::Step], maximum_time: Duration) -> Vec<Step> {
        const KEY: &str = "ramp.steps.steps";
        if !(1..=MOST_STEPS).contains(&given.len()) {
            self.0.push(format!("{KEY}: must be from 1 to {MOST_STEPS}, not {}", given.len()));
            return Vec::new();
        }
        let steps = given.iter().enumerate();
        let steps: Vec<_> =
            steps.map(|(at, step)| self.step(&format!("{KEY}[{at}]"), step)).collect();
        // A lower share would move users back to live, and they would then be recorded
        // without a new draw.
        for (at, pair) in given.windows(2).enumerate() {
            let [before, share] = [pair[0].share, pair[1].share];
            if share < before {
                let after = format!("must not be below the one before, {before}");
                self.0.push(format!("{KEY}[{}].share: {after}, not {share}", at + 1));
            }
        }
        let time: Duration = steps.iter().map(|step| step.time).sum();
        if time >= maximum_time {
            let within = format!("must be over before maximum_time, {maximum_time:?}");
            self.0.push(format!("{KEY}: {within}, and take {time:?}"));
        }
        steps
    }

    fn step(&mut self, key: &str, step: &wire::Step) -> Step {
        Step {
            share: self.share(&format!("{key}.share"), step.share),
            time: self.time(&format!("{key}.time"), step.time, Duration::ZERO),
            requests: step.requests,
        }
    }
}
