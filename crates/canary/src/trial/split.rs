//! The part of a trial in which the traffic is split.

use std::{sync::Arc, time::Duration};

use outrigger_core::Moment;
use serde::{Deserialize, Serialize};

use crate::{
    Course, Observation, Reference, Share, Statistics, Verdict,
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
}

/// The saved state of a split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitProgress {
    spent: Duration,
    statistics: Statistics,
    step_spent: Duration,
    step_requests: u64,
}

/// Elapsed time, summed over process restarts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch {
    before: Duration,
    since: Moment,
}

impl Split {
    /// Begins a split after a warm-up in which live answered like `sample`.
    pub(super) fn begin(sample: &[Observation], quantile: f64, now: Moment) -> Self {
        let reference = Arc::new(Reference::new(sample, quantile));
        Self::new(Statistics::new(reference), now)
    }

    /// Resumes from the state of an earlier process. The recent window is not saved: it
    /// fills again within minutes.
    pub(super) fn resume(seen: SplitProgress, now: Moment) -> Self {
        Self {
            time: Stopwatch::start(seen.spent, now),
            step_time: Stopwatch::start(seen.step_spent, now),
            step_requests: seen.step_requests,
            ..Self::new(seen.statistics, now)
        }
    }

    fn new(statistics: Statistics, now: Moment) -> Self {
        Self {
            time: Stopwatch::start(Duration::ZERO, now),
            statistics,
            lately: Window::new(Duration::from_secs(30), 10),
            pace: Pace::new(now),
            step_time: Stopwatch::start(Duration::ZERO, now),
            step_requests: 0,
            verdict: None,
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
