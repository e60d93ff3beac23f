//! The circuit breaker that protects live from a canary that overloads the engine.
//!
//! Both arms share the engine, so a canary that costs too much makes both slow, and the
//! comparison of the arms does not show it. The breaker compares live with its own
//! measurement before the split. When live is far worse, the canary gets no requests (the
//! circuit breaker of Nygard 2007). A switchback experiment (Bojinov, Simchi-Levi & Zhao
//! 2023) then shows whether the canary is the cause, see [`switch`].

mod period;
mod switch;

use std::time::Duration;

use outrigger_core::{Arm, Moment};
use serde::{Deserialize, Serialize};

pub use self::switch::{Probes, Slots};
use self::{
    period::{Level, Period},
    switch::Switch,
};
use crate::{Observation, Outcome};

/// The shortest period over which live is measured.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest one, if there are few requests.
const LONGEST: Duration = Duration::from_secs(10);
/// The number of live's requests that end a period after the shortest time.
const REQUESTS: u64 = 50;

/// Watches live during a split, and decides whether the canary gets requests.
#[derive(Debug)]
pub(crate) struct Breaker {
    level: Level,
    period: Period,
    began: Moment,
    switch: Switch,
}

/// The state of a breaker that survives a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerProgress {
    level: Level,
    probes: Probes,
    is_open: bool,
}

impl Breaker {
    /// Watches a live that answered like `sample` before the split. The experiment's
    /// random choices follow from the seed.
    pub(crate) fn new(sample: &[Observation], seed: u64, now: Moment) -> Self {
        let (level, switch) = (Level::of(sample), Switch::new(seed));
        Self { level, period: Period::default(), began: now, switch }
    }

    /// Continues from the state of an earlier process.
    pub(crate) fn resume(progress: BreakerProgress, seed: u64, now: Moment) -> Self {
        let BreakerProgress { level, probes, is_open } = progress;
        let switch = Switch::resume(probes, is_open, seed);
        Self { level, period: Period::default(), began: now, switch }
    }

    /// Records the outcome of a request; only those on live matter.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        if observation.arm == Arm::Live {
            let is_failed = observation.outcome == Outcome::Failed;
            self.period.record(observation.latency, is_failed);
        }
    }

    /// Ends the period if it is over, and switches the canary off or on.
    pub(crate) fn tick(&mut self, now: Moment) {
        let lasted = now.since(self.began);
        let is_over = lasted >= SHORTEST && self.period.requests() >= REQUESTS;
        if !is_over && lasted < LONGEST {
            return;
        }
        let period = std::mem::take(&mut self.period);
        self.began = now;
        let is_bad = self.level.is_far_exceeded(&period);
        if self.switch.end_period(is_bad) {
            self.level.raise(&period);
        }
    }

    /// True if the canary gets requests now.
    pub(crate) fn is_closed(&self) -> bool {
        self.switch.is_on()
    }

    /// True if the canary gets its whole share, and no experiment is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.switch.is_at_rest()
    }

    /// The experiment so far.
    pub(crate) fn probes(&self) -> &Probes {
        self.switch.probes()
    }

    /// The state from which a later process continues.
    pub(crate) fn progress(&self) -> BreakerProgress {
        BreakerProgress {
            level: self.level,
            probes: self.switch.probes().clone(),
            is_open: !self.switch.is_at_rest(),
        }
    }
}
