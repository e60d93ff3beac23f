//! The part of a trial in which the traffic is split.

use std::{sync::Arc, time::Duration};

use outrigger_core::Moment;
use serde::{Deserialize, Serialize};

use crate::{
    Course, Observation, Reference, Share, Statistics, Verdict,
    breaker::{Breaker, BreakerProgress},
    statistics::{Pace, Stage, Window},
};

/// Both arms' requests since the split, and the means to judge them.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) time: Stopwatch,
    pub(super) statistics: Statistics,
    /// Both arms' recent requests, for display only. The judge uses all requests: a test
    /// that is restarted could err anew each time.
    pub(super) lately: Window<Stage>,
    pace: Pace,
    /// Time in the present step of the ramp.
    pub(super) step_time: Stopwatch,
    /// Canary requests at the start of that step.
    pub(super) step_requests: u64,
    pub(super) verdict: Option<Verdict>,
    /// `None` for a split that a version without a breaker began.
    pub(super) breaker: Option<Breaker>,
}

/// The saved state of a split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitProgress {
    spent: Duration,
    statistics: Statistics,
    step_spent: Duration,
    step_requests: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerProgress>,
}

/// Elapsed time, summed over process restarts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch {
    before: Duration,
    since: Moment,
}

impl Split {
    /// Begins a split after a warm-up in which live answered like `sample`.
    pub(super) fn begin(sample: &[Observation], quantile: f64, seed: u64, now: Moment) -> Self {
        let reference = Arc::new(Reference::new(sample, quantile));
        let breaker = Breaker::new(sample, seed, now);
        Self::new(Statistics::new(reference), Some(breaker), now)
    }

    /// Resumes from the state of an earlier process. The recent window is not saved: it
    /// fills again within minutes.
    pub(super) fn resume(seen: SplitProgress, seed: u64, now: Moment) -> Self {
        let breaker = seen.breaker.map(|breaker| Breaker::resume(breaker, seed, now));
        Self {
            time: Stopwatch::start(seen.spent, now),
            step_time: Stopwatch::start(seen.step_spent, now),
            step_requests: seen.step_requests,
            ..Self::new(seen.statistics, breaker, now)
        }
    }

    fn new(statistics: Statistics, breaker: Option<Breaker>, now: Moment) -> Self {
        Self {
            time: Stopwatch::start(Duration::ZERO, now),
            statistics,
            lately: Window::new(Duration::from_secs(30), 10),
            pace: Pace::new(now),
            step_time: Stopwatch::start(Duration::ZERO, now),
            step_requests: 0,
            verdict: None,
            breaker,
        }
    }

    pub(super) fn observe(&mut self, share: Share, observation: &Observation, now: Moment) {
        let (reference, threshold) = (self.statistics.reference(), self.statistics.threshold());
        self.lately.at(now).record(reference, threshold, observation);
        self.statistics.record(share, observation);
        self.pace.count(now);
    }

    pub(super) fn course(&self, now: Moment) -> Course {
        Course { elapsed: self.time.elapsed(now), pace: self.pace.per_second(now) }
    }

    /// Begins the next step of the ramp.
    pub(super) fn next_step(&mut self, now: Moment) {
        self.step_time = Stopwatch::start(Duration::ZERO, now);
        self.step_requests = self.statistics.requests().1;
    }

    /// The state from which a later process resumes.
    pub(super) fn progress(&self, now: Moment) -> SplitProgress {
        SplitProgress {
            spent: self.time.elapsed(now),
            statistics: self.statistics.clone(),
            step_spent: self.step_time.elapsed(now),
            step_requests: self.step_requests,
            breaker: self.breaker.as_ref().map(Breaker::progress),
        }
    }
}

impl Stopwatch {
    pub(super) fn start(before: Duration, since: Moment) -> Self {
        Self { before, since }
    }

    pub(super) fn elapsed(self, now: Moment) -> Duration {
        self.before + now.since(self.since)
    }
}
