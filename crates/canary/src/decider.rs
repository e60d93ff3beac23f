//! The judge.

use std::time::Duration;

use crate::{
    Config, Statistics,
    evidence::{Side, events::Tally, proportion},
    signal::Watched,
    verdict::{Decision, Finding, SampleRatio, State, Verdict},
};

/// How far a trial has come, and what traffic there is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// How long the canary has been on trial.
    pub elapsed: Duration,
    /// Requests a second of late, on both arms; of several replicas, on all of them.
    pub pace: f64,
}

/// Of late there were not more requests than before.
impl From<Duration> for Course {
    fn from(elapsed: Duration) -> Self {
        Self { elapsed, pace: 0.0 }
    }
}

impl Course {
    /// How many times the requests seen by now there will be when `maximum` has
    /// passed: at the traffic of late, or at that of the whole trial if that is more.
    /// A quiet hour is not taken for all that is to come, and neither is a quiet
    /// beginning.
    fn growth(self, requests: u64, maximum: Duration) -> f64 {
        let steady = maximum.as_secs_f64() / self.elapsed.as_secs_f64();
        let to_come = self.pace * maximum.saturating_sub(self.elapsed).as_secs_f64();
        steady.max(1.0 + to_come / f64::max(requests as f64, 1.0))
    }
}

/// Decides from statistics, which may be those of one replica or the sum of
/// several. It may be asked as often as one likes: the errors it makes are
/// bounded over all the times that it is asked.
#[derive(Debug)]
pub struct Decider {
    config: Config,
    watched: Vec<Watched>,
}

impl Decider {
    /// A judge of what `config` watches.
    pub fn new(config: Config) -> Self {
        Self { watched: Watched::of(&config), config }
    }

    /// What it watches.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether harm is proved: the cheap question, for every request. Harm is
    /// proved as soon as one signal exceeds its tolerance, and is not proved to
    /// be within its margin all the same.
    pub fn harmful(&self, statistics: &Statistics) -> bool {
        self.watched.iter().any(|watched| watched.harmful(statistics))
    }

    /// What is to be done at this time of the trial, with the figures.
    pub fn verdict(&self, statistics: &Statistics, course: impl Into<Course>) -> Verdict {
        let course = course.into();
        let findings = self.watched.iter().map(|watched| finding(watched, statistics));
        let findings: Vec<_> = findings.collect();
        let (live, canary) = statistics.requests();
        Verdict {
            decision: self.decide(statistics, course),
            elapsed: course.elapsed,
            live,
            canary,
            findings,
            sample_ratio: sample_ratio(statistics),
        }
    }

    /// What is to be done at this time of the trial.
    pub fn decide(&self, statistics: &Statistics, course: impl Into<Course>) -> Decision {
        let course = course.into();
        if self.harmful(statistics) {
            Decision::Rollback
        } else if self.promising(statistics, course.elapsed) && self.harmless(statistics) {
            Decision::Promote
        } else if self.starved(statistics, course) {
            Decision::Starved
        } else {
            Decision::Continue
        }
    }

    fn harmless(&self, statistics: &Statistics) -> bool {
        self.watched.iter().all(|watched| watched.harmless(statistics))
    }

    /// Whether it was tried for as long, and with as much, as the configuration
    /// wants at least.
    fn promising(&self, statistics: &Statistics, elapsed: Duration) -> bool {
        elapsed >= self.config.minimum_time
            && statistics.requests().1 >= self.config.minimum_requests
    }

    /// Whether it will not be decided in time: not even if from now on the canary
    /// does exactly what live does, at the traffic of late or of the whole trial. That
    /// is only told after a tenth of the time, when the traffic is known.
    fn starved(&self, statistics: &Statistics, course: Course) -> bool {
        let maximum = self.config.maximum_time;
        if course.elapsed >= maximum {
            return true;
        }
        if course.elapsed < maximum / 10 {
            return false;
        }
        let (live, canary) = statistics.requests();
        let forecast = statistics.forecast(course.growth(live + canary, maximum));
        !(self.promising(&forecast, maximum) && self.harmless(&forecast))
    }
}

/// Evidence at which the arms' sizes do not fit the share: once in a thousand
/// canaries, for two sides.
const MISMATCH: f64 = 7.600_902_459_542_082;

/// Whether the arms are as large as the shares say, by the test of Lindon & Malek
/// (2022): when they are not, something is lost or assigned on the way, and no
/// comparison of what is left is to be trusted.
fn sample_ratio(statistics: &Statistics) -> SampleRatio {
    let stages = || {
        statistics.stages().map(|(share, stage)| {
            let (live, events) = (stage.live.requests(), stage.canary.requests());
            (Tally { events, requests: live + events }, share.probability())
        })
    };
    let (mut expected, mut seen, mut requests) = (0.0, 0.0, 0.0);
    for (tally, share) in stages() {
        expected += share * tally.requests as f64;
        seen += tally.events as f64;
        requests += tally.requests as f64;
    }
    let fits = [Side::More, Side::Less]
        .into_iter()
        .all(|side| proportion::log_evidence(stages(), side) < MISMATCH);
    let requests = f64::max(requests, 1.0);
    SampleRatio { expected: expected / requests, seen: seen / requests, fits }
}

fn finding(watched: &Watched, statistics: &Statistics) -> Finding {
    let state = if watched.harmless(statistics) {
        State::Harmless
    } else if watched.harmful(statistics) {
        State::Harmful
    } else {
        State::Open
    };
    let difference = watched.difference(statistics);
    Finding {
        signal: watched.signal,
        state,
        live: difference.live,
        canary: difference.canary,
        difference: difference.estimate,
        lower: difference.lower,
        upper: difference.upper,
        tolerance: watched.limits.tolerance,
        margin: watched.limits.margin,
        detail: difference.detail,
    }
}
