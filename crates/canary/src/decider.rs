//! Decides on a trial from the statistics of its arms.

use std::time::Duration;

use crate::{
    Config, Statistics,
    evidence::{Side, events::Tally, proportion},
    signal::Watched,
    verdict::{Decision, Finding, SampleRatio, State, Verdict},
};

/// Progress of a trial in time, and its traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// Time that the canary has been on trial.
    pub elapsed: Duration,
    /// Requests a second on both arms over about the last hour, summed over the replicas.
    pub pace: f64,
}

/// Assumes that the recent request rate is not above that of the whole trial.
impl From<Duration> for Course {
    fn from(elapsed: Duration) -> Self {
        Self { elapsed, pace: 0.0 }
    }
}

impl Course {
    /// The factor by which the number of requests will have grown when `maximum` has
    /// passed. It uses the larger of the recent request rate and the trial's mean rate,
    /// so that neither a quiet hour nor a quiet beginning is extrapolated to the whole
    /// trial.
    fn growth(self, requests: u64, maximum: Duration) -> f64 {
        let steady = maximum.as_secs_f64() / self.elapsed.as_secs_f64();
        let to_come = self.pace * maximum.saturating_sub(self.elapsed).as_secs_f64();
        steady.max(1.0 + to_come / f64::max(requests as f64, 1.0))
    }
}

/// Decides from the statistics of one replica or the sum of several. It can be asked at
/// any time and any number of times: its error probabilities are bounded over all looks.
#[derive(Debug)]
pub struct Decider {
    config: Config,
    watched: Vec<Watched>,
}

impl Decider {
    /// A decider for the signals that `config` watches.
    pub fn new(config: Config) -> Self {
        Self { watched: Watched::of(&config), config }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// True if harm is proved; cheap enough for every request. Harm is proved as soon as
    /// one signal exceeds its tolerance and is not proved to be within its margin.
    pub fn harmful(&self, statistics: &Statistics) -> bool {
        self.watched.iter().any(|watched| watched.harmful(statistics))
    }

    /// The decision at this time of the trial, with the figures that it rests on.
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

    /// The decision at this time of the trial.
    pub fn decide(&self, statistics: &Statistics, course: impl Into<Course>) -> Decision {
        let course = course.into();
        if self.harmful(statistics) {
            Decision::Rollback
        } else if self.meets_minimum(statistics, course.elapsed)
            && self.harmless(statistics)
            && sizes_fit(statistics, 1.0)
        {
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

    /// True if the trial has reached the configured minimum of time and requests.
    fn meets_minimum(&self, statistics: &Statistics, elapsed: Duration) -> bool {
        elapsed >= self.config.minimum_time
            && statistics.requests().1 >= self.config.minimum_requests
    }

    /// True if the trial cannot be decided in time: the forecast, in which the canary
    /// does exactly what live has done and further requests fit the share, is not promoted
    /// at the maximum time. False during the first tenth of that time, when the request
    /// rate is not known well enough.
    fn starved(&self, statistics: &Statistics, course: Course) -> bool {
        let maximum = self.config.maximum_time;
        if course.elapsed >= maximum {
            return true;
        }
        if course.elapsed < maximum / 10 {
            return false;
        }
        let (live, canary) = statistics.requests();
        let growth = course.growth(live + canary, maximum);
        let forecast = statistics.forecast(growth);
        !(self.meets_minimum(&forecast, maximum)
            && self.harmless(&forecast)
            && sizes_fit(statistics, growth))
    }
}

/// Log evidence that proves a sample-ratio mismatch: `ln(2 / 0.001)`, a false alarm in
/// one of a thousand canaries for two sides.
const MISMATCH: f64 = 7.600_902_459_542_082;

/// The canary's requests of all requests at each share, after `growth` times as many
/// requests of which the further ones fit the share.
fn sizes(statistics: &Statistics, growth: f64) -> impl Iterator<Item = (Tally, f64)> {
    statistics.stages().map(move |(share, stage)| {
        let (live, canary) = (stage.live.requests(), stage.canary.requests());
        let (share, further) = (share.probability(), (live + canary) as f64 * (growth - 1.0));
        let [events, others] = [(canary, share), (live, 1.0 - share)]
            .map(|(seen, part)| seen + (part * further) as u64);
        (Tally { events, requests: events + others }, share)
    })
}

/// Tests for a sample-ratio mismatch (Lindon & Malek 2022). If the arms' sizes do not fit
/// the shares, requests are lost or misassigned, and no comparison of the others can be
/// trusted.
fn sizes_fit(statistics: &Statistics, growth: f64) -> bool {
    let fits = |side| proportion::log_evidence(sizes(statistics, growth), side) < MISMATCH;
    fits(Side::More) && fits(Side::Less)
}

fn sample_ratio(statistics: &Statistics) -> SampleRatio {
    let (mut expected, mut seen, mut requests) = (0.0, 0.0, 0.0);
    for (tally, share) in sizes(statistics, 1.0) {
        expected += share * tally.requests as f64;
        seen += tally.events as f64;
        requests += tally.requests as f64;
    }
    let requests = f64::max(requests, 1.0);
    let fits = sizes_fit(statistics, 1.0);
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
