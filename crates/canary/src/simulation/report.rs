//! The report of a simulation.

use std::{fmt, time::Duration};

use outrigger_core::{Arm, Moment};
use serde::Serialize;

use super::{Effect, Log, Traffic, Trial, seconds};
use crate::{Course, Decider, Decision, Observation, Reference, Share, Verdict, statistics::Pace};

/// The result of one trial: how it ended, and how the evidence accumulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The verdict, or the state at the end without one.
    pub verdict: Verdict,
    /// The verdicts when the canary had had 16, 32, 64 ... requests.
    pub trace: Vec<Verdict>,
    /// The time to decide on other canaries with this traffic.
    pub power: Vec<Power>,
}

/// The time to decide on a canary with a given defect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Power {
    /// The canary's defect.
    pub canary: &'static str,
    /// The correct decision.
    pub decision: Decision,
    /// The share of simulated canaries that got it.
    pub share: f64,
    /// Median requests on the canary until the decision, if at least half got it.
    pub requests: Option<u64>,
    /// Median time until the decision.
    #[serde(rename = "median_seconds", serialize_with = "as_seconds")]
    pub median: Option<Duration>,
    /// Time within which nine in ten were decided.
    #[serde(rename = "ninety_percent_seconds", serialize_with = "as_seconds")]
    pub ninety: Option<Duration>,
    /// Requests a second.
    pub rate: f64,
}

/// A request with the canary's share and the time since the trial began.
type Timed = (Share, Observation, Duration);

impl Report {
    /// Simulates generated traffic at `rate` requests a second, until a verdict or until
    /// the canary has had `most` requests.
    pub fn generated(decider: &Decider, mut traffic: Traffic, rate: f64, most: u64) -> Self {
        let sample = traffic.before(Reference::REQUESTS);
        let share = traffic.share;
        let requests =
            (1_u64..).map(move |count| (share, traffic.request(), seconds(count as f64 / rate)));
        let mut canary = 0;
        let requests = requests.take_while(|(_, seen, _)| {
            canary += u64::from(seen.arm == Arm::Canary);
            canary <= most
        });
        Self::of(decider, &sample, requests)
    }

    /// Replays a log. `share` is the canary's share for requests that were logged without
    /// one.
    pub fn logged(decider: &Decider, log: &Log, share: Share) -> Self {
        let start = log.trial.first().map_or(Duration::ZERO, |first| first.time);
        let requests = log.trial.iter().map(|logged| {
            let elapsed = logged.time.saturating_sub(start);
            (logged.share.unwrap_or(share), logged.observation, elapsed)
        });
        Self::of(decider, &log.sample, requests)
    }

    fn of(
        decider: &Decider,
        sample: &[Observation],
        requests: impl Iterator<Item = Timed>,
    ) -> Self {
        let reference = Reference::new(sample, decider.config().quantile());
        let mut trial = Trial::new(decider, reference);
        let (mut trace, mut course) = (Vec::new(), Course::from(Duration::ZERO));
        let mut pace = Pace::new(Moment::default());
        for (share, observation, elapsed) in requests {
            let now = Moment::at(elapsed);
            pace.count(now);
            course = Course { elapsed, pace: pace.per_second(now) };
            let decision = trial.observe(share, &observation, course);
            if decision != Decision::Continue {
                break;
            }
            let canary = trial.canary();
            if observation.arm == Arm::Canary && canary >= 16 && canary.is_power_of_two() {
                trace.push(decider.verdict(trial.statistics(), course));
            }
        }
        let verdict = decider.verdict(trial.statistics(), course);
        Self { verdict, trace, power: Vec::new() }
    }

    /// Adds the time that it takes, on traffic like this, to detect canaries with common
    /// defects and to promote one without. Simulates `runs` canaries of each kind, for at
    /// most `most` canary requests each.
    #[must_use]
    pub fn with_power(
        mut self,
        decider: &Decider,
        traffic: &Traffic,
        rate: f64,
        runs: u64,
        most: u64,
    ) -> Self {
        let none = Effect::NONE;
        let kinds = [
            ("+1% errors", Effect { errors: 0.01, ..none }, Decision::Rollback),
            ("latency x 1.2", Effect { latency: 1.2, ..none }, Decision::Rollback),
            ("scores shifted by 0.1 deviations", Effect { shift: 0.1, ..none }, Decision::Rollback),
            ("+0.1% NaN", Effect { non_finite: 0.001, ..none }, Decision::Rollback),
            ("nothing wrong", none, Decision::Promote),
        ];
        self.power = kinds
            .into_iter()
            .map(|(canary, effect, decision)| {
                let traffic = traffic.with_effect(effect);
                Power::of(decider, &traffic, rate, runs, most, (canary, decision))
            })
            .collect();
        self
    }
}

impl Power {
    fn of(
        decider: &Decider,
        traffic: &Traffic,
        rate: f64,
        runs: u64,
        most: u64,
        (canary, decision): (&'static str, Decision),
    ) -> Self {
        let endings = (0..runs).map(|seed| {
            let (ending, _) = Trial::run(decider, traffic.with_seed(seed), rate, most);
            ending
        });
        let mut decided: Vec<_> = endings
            .filter(|ending| ending.decision == decision)
            .map(|ending| (ending.elapsed, ending.canary))
            .collect();
        decided.sort_unstable();
        let at = |quantile: f64| decided.get((quantile * runs as f64) as usize).copied();
        Self {
            canary,
            decision,
            share: decided.len() as f64 / runs.max(1) as f64,
            requests: at(0.5).map(|(_, requests)| requests),
            median: at(0.5).map(|(elapsed, _)| elapsed),
            ninety: at(0.9).map(|(elapsed, _)| elapsed),
            rate,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, power, .. } = self;
        writeln!(f, "{}", verdict.decision)?;
        let (canary, live) = (verdict.canary, verdict.live);
        let elapsed = written(verdict.elapsed);
        writeln!(f, "  after {elapsed}, {canary} requests on the canary, {live} on live")?;
        for finding in &verdict.findings {
            writeln!(f, "  {:<8}  {finding}", finding.state.to_string())?;
        }
        if !verdict.sample_ratio.fits {
            writeln!(f, "  {}", verdict.sample_ratio)?;
        }
        power.iter().try_for_each(|power| writeln!(f, "{power}"))
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, canary) = (self.rate, self.canary);
        let end = if self.decision == Decision::Promote { "promote" } else { "see" };
        let Some(median) = self.median.map(written) else {
            let decided = 100.0 * self.share;
            return write!(
                f,
                "too long at {rate} requests/s to {end} {canary}: decided {decided:.0}%"
            );
        };
        write!(f, "needs {median} at {rate} requests/s to {end} {canary}")?;
        match self.ninety.map(written) {
            Some(ninety) => write!(f, " (9 in 10: {ninety})"),
            None => write!(f, " (decided {:.0}%)", 100.0 * self.share),
        }
    }
}

/// Formats a time in its one or two largest units.
pub(super) fn written(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..600 => format!("{minutes}m {}s", seconds % 60),
        600..3600 => format!("{minutes}m"),
        _ => format!("{hours}h {}m", minutes % 60),
    }
}

fn as_seconds<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_their_largest_units() {
        let written = |seconds| written(Duration::from_secs_f64(seconds));
        assert_eq!(
            [0.25, 42.6, 97.0, 2280.0, 8000.0].map(written),
            ["0.2s", "42s", "1m 37s", "38m", "2h 13m"]
        );
    }
}
