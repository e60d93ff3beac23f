//! How one canary is tried.

use std::{fmt, sync::Arc, time::Duration};

use outrigger_proto::outrigger::v1::{ModelCanaryConfig, model_canary_config as wire};
use prost_types::Duration as WireDuration;

use crate::{
    Config, InvalidShare, LatencyLimits, Limits, NonFiniteLimits, Profile, Reference, Share,
    Signal, SkewLimits,
};

/// How one canary is tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What is watched, and when enough has been seen.
    pub judge: Config,
    /// The canary's share over time.
    pub ramp: Ramp,
    /// What is measured of live before the split.
    pub warm_up: WarmUp,
    /// What is done when it has proved itself.
    pub mode: Mode,
    /// What is done when it will not be decided in time.
    pub on_starved: OnStarved,
    /// The part of live's requests that the canary answers as well, to be compared:
    /// from 0 to 1.
    pub shadow: f64,
    /// How far features may be from the canary's profile, if that is watched.
    pub skew: Option<Limits>,
}

/// A canary's share of the traffic over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Ramp {
    /// One after the other; at least one.
    Steps(Vec<Step>),
    /// Doubles with the evidence.
    Evidence {
        /// The first share.
        first: Share,
        /// The last one.
        most: Share,
        /// Requests on the canary that must have shown no difference before each.
        requests: u64,
    },
}

/// A share that is held for a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The canary's.
    pub share: Share,
    /// At least.
    pub time: Duration,
    /// On the canary, at least.
    pub requests: u64,
}

/// What is measured of live before the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// So many requests,
    pub requests: u64,
    /// or fewer after this time.
    pub time: Duration,
}

/// What is done with a canary that has proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The live tag is moved in the registry.
    Registry,
    /// It is told.
    Recommend,
    /// This process answers by it.
    Local,
}

/// What is done with a canary that will not be decided in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStarved {
    /// It is rolled back.
    Rollback,
    /// It is promoted.
    Promote,
    /// It is tried on.
    Continue,
}

/// Everything that is wrong with a canary's settings.
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
    /// The same for models of which one draws: two of their answers to a request
    /// differ anyway, so that only distributions are compared.
    ///
    /// # Errors
    /// No distribution is watched.
    pub fn of_distributions(self) -> Result<Self, InvalidSettings> {
        let judge = Config { disagreement: None, ..self.judge };
        if !judge.watches() {
            let problem = "signals: a model that draws is compared by distributions only, and \
                           none of them is watched";
            return Err(InvalidSettings::one(problem.to_owned()));
        }
        Ok(Self { shadow: 0.0, judge, ..self })
    }

    /// The same with the features held against the canary's profile, if they are to
    /// be.
    ///
    /// # Errors
    /// They are, and it has none.
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
    /// All problems at once.
    fn try_from(config: &ModelCanaryConfig) -> Result<Self, InvalidSettings> {
        let mut problems = Problems::default();
        let warm_up = config.warm_up.unwrap_or_default();
        let signals = config.signals.unwrap_or_default();
        let settings = Self {
            judge: judge(config, &mut problems),
            ramp: ramp(config.ramp.as_ref(), &mut problems),
            warm_up: WarmUp {
                requests: warm_up.requests.unwrap_or(Reference::REQUESTS as u64),
                time: problems.time("warm_up.time", warm_up.time, Duration::from_secs(60)),
            },
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
    let usual_latency = usual.latency.expect("it is usually watched");
    let non_finite = signals.non_finite.unwrap_or_default();
    let usual_non_finite = usual.non_finite.expect("it is usually watched");
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
        // Against a profile that is not known yet.
        skew: None,
        minimum_requests: config.minimum_requests.unwrap_or(usual.minimum_requests),
        minimum_time: problems.time("minimum_time", config.minimum_time, usual.minimum_time),
        maximum_time: problems.time("maximum_time", config.maximum_time, usual.maximum_time),
    }
}

/// A signal's limits; `None` if it is not watched.
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

/// The limits of a signal that is watched when it is named.
fn watched(given: Option<wire::Limits>, usual: Limits) -> Option<Limits> {
    given.and_then(|given| limits(Some(given), Some(usual)))
}

/// How far shares of a feature's values may be off when nobody says otherwise.
const USUAL_SKEW: Limits = Limits { tolerance: 0.05, margin: 0.1 };
/// How many first treatments may change when nobody says otherwise: a model that is
/// trained anew changes some.
const USUAL_DISAGREEMENT: Limits = Limits { tolerance: 0.1, margin: 0.2 };
/// The share that a canary has when nobody says otherwise.
const USUAL_SHARE: f64 = 0.1;
/// Requests before the share doubles, when nobody says otherwise.
const USUAL_EVIDENCE: u64 = 500;

fn ramp(given: Option<&wire::Ramp>, problems: &mut Problems) -> Ramp {
    let constant = |share| Ramp::Steps(vec![Step { share, time: Duration::ZERO, requests: 0 }]);
    match given.and_then(|ramp| ramp.kind.as_ref()) {
        None => constant(problems.share("ramp.share", USUAL_SHARE)),
        Some(wire::ramp::Kind::Share(share)) => constant(problems.share("ramp.share", *share)),
        Some(wire::ramp::Kind::Steps(steps)) => {
            if steps.steps.is_empty() {
                problems.0.push("ramp.steps: there is none".to_owned());
            }
            Ramp::Steps(steps.steps.iter().map(|step| problems.step(step)).collect())
        }
        Some(wire::ramp::Kind::Evidence(evidence)) => {
            let first = problems.share("ramp.evidence.first", evidence.first);
            let most = problems.share("ramp.evidence.most", evidence.most);
            if most < first {
                problems.0.push("ramp.evidence: most is less than first".to_owned());
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
        given.try_into().unwrap_or_else(|_| {
            self.0.push(format!("{key}: must not be negative"));
            usual
        })
    }

    fn shadow(&mut self, settings: &Settings) {
        let shadow = settings.shadow;
        if !(0.0..=1.0).contains(&shadow) {
            self.0.push(format!("shadow: must lie between 0 and 1, not be {shadow}"));
        } else if settings.judge.disagreement.is_some() && shadow == 0.0 {
            self.0.push("signals.disagreement: nothing is compared without a shadow".to_owned());
        }
    }

    fn step(&mut self, step: &wire::Step) -> Step {
        Step {
            share: self.share("ramp.steps.share", step.share),
            time: self.time("ramp.steps.time", step.time, Duration::ZERO),
            requests: step.requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Layer;

    fn read(json: &serde_json::Value) -> Result<Settings, InvalidSettings> {
        Settings::try_from(&Layer::from_json(json)?.message())
    }

    #[test]
    fn what_is_left_out_is_as_usual() {
        let settings = Settings::default();
        assert_eq!(settings.judge, Config::default());
        assert_eq!(settings.mode, Mode::Registry);
        let tenth = Step { share: Share::new(0.1).unwrap(), time: Duration::ZERO, requests: 0 };
        assert_eq!(settings.ramp, Ramp::Steps(vec![tenth]));
    }

    #[test]
    fn what_is_given_replaces_it() {
        let settings = read(&json!({
            "mode": "MODE_LOCAL",
            "onStarved": "ON_STARVED_CONTINUE",
            "minimumTime": "1s",
            "signals": {
                "errorRate": {"margin": 0.2},
                "latency": {"quantile": 0.5, "limits": {"off": false}},
                "scoreDrift": {"off": true},
            },
        }))
        .unwrap();
        assert_eq!(settings.judge.error_rate, Some(Limits { tolerance: 0.0, margin: 0.2 }));
        assert_eq!(settings.judge.quantile(), 0.5);
        assert_eq!(settings.judge.scores, None);
        assert_eq!(settings.judge.minimum_time, Duration::from_secs(1));
        assert_eq!((settings.mode, settings.on_starved), (Mode::Local, OnStarved::Continue));
    }

    #[test]
    fn disagreement_is_watched_when_it_is_named_and_there_is_a_shadow() {
        let settings = read(&json!({"shadow": 0.2})).unwrap();
        assert_eq!((settings.shadow, settings.judge), (0.2, Config::default()));
        let both = json!({"shadow": 1, "signals": {"disagreement": {"margin": 0.3}}});
        let settings = read(&both).unwrap();
        assert_eq!(settings.judge.disagreement, Some(Limits { tolerance: 0.1, margin: 0.3 }));
        let settings = settings.of_distributions().unwrap();
        assert_eq!((settings.shadow, settings.judge.disagreement), (0.0, None));
        for wrong in [json!({"shadow": 1.5}), json!({"signals": {"disagreement": {}}})] {
            let told = read(&wrong).unwrap_err().to_string();
            assert!(told.contains("shadow"), "{told}");
        }
    }

    fn profile() -> Option<Arc<Profile>> {
        let profile = br#"{"schema": "outrigger.dev/profile/v1", "features": []}"#;
        Some(Arc::new(Profile::parse(profile).unwrap()))
    }

    /// Settings that watch what is `named` and nothing else.
    fn only(named: &serde_json::Value) -> Result<Settings, InvalidSettings> {
        let off = json!({"off": true});
        let mut signals = json!({
            "errorRate": off, "latency": {"limits": off}, "scoreDrift": off,
            "nonFinite": {"limits": off},
        });
        let named = named.as_object().unwrap().clone();
        signals.as_object_mut().unwrap().extend(named);
        read(&json!({"shadow": 0.5, "signals": signals}))
    }

    #[test]
    fn each_signal_may_be_watched_alone_and_none_may_not() {
        for named in [
            json!({"errorRate": {}}),
            json!({"latency": {}}),
            json!({"scoreDrift": {}}),
            json!({"nonFinite": {}}),
            json!({"disagreement": {}}),
            json!({"skew": {}}),
        ] {
            let settings = only(&named).and_then(|settings| settings.against(profile()));
            assert!(settings.unwrap().judge.watches(), "{named}");
        }
        assert!(only(&json!({})).unwrap_err().to_string().contains("none is watched"));
    }

    #[test]
    fn of_a_model_that_draws_something_has_to_be_watched() {
        let drawing = |named| {
            let settings = only(&named).and_then(|settings| settings.against(profile()));
            settings.unwrap().of_distributions()
        };
        assert!(drawing(json!({"skew": {}, "disagreement": {}})).is_ok());
        let told = drawing(json!({"disagreement": {}})).unwrap_err().to_string();
        assert!(told.contains("draws"), "{told}");
    }

    #[test]
    fn skew_is_watched_when_it_is_named_and_needs_a_profile() {
        assert_eq!(read(&json!({})).unwrap().against(profile()).unwrap().judge.skew, None);
        let settings = read(&json!({"signals": {"skew": {"tolerance": 0.03}}})).unwrap();
        let told = settings.clone().against(None).unwrap_err().to_string();
        assert!(told.contains("profile.json"), "{told}");
        let skew = settings.against(profile()).unwrap().judge.skew.unwrap();
        assert_eq!(skew.limits, Limits { tolerance: 0.03, margin: 0.1 });
        assert!(read(&json!({"signals": {"skew": {"margin": 0.01}}})).is_err());
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let wrong = read(&json!({
            "confidence": 2,
            "ramp": {"evidence": {"first": 0.5, "most": 1.5}},
            "minimumTime": "-1s",
        }));
        let told = wrong.unwrap_err().to_string();
        for part in ["confidence", "ramp.evidence.most", "minimum_time"] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert!(read(&json!({"ramp": {"steps": {}}})).is_err());
    }
}
