//! One trial that is tested after every request of the canary.

use std::{sync::Arc, time::Duration};

use outrigger_core::Arm;

use super::{Traffic, seconds};
use crate::{Course, Decider, Decision, Observation, Reference, Share, Statistics};

/// Canary requests between full decisions; other requests are only tested for harm. A
/// promotion can wait that long.
const FULL_LOOK: u64 = 16;

/// A canary on trial.
#[derive(Debug)]
pub struct Trial<'d> {
    decider: &'d Decider,
    statistics: Statistics,
    canary: u64,
}

/// The end of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// The decision; [`Decision::Continue`] if the trial ended without one.
    pub decision: Decision,
    /// Requests assigned to the canary.
    pub canary: u64,
    /// Time since the trial began.
    pub elapsed: Duration,
}

impl<'d> Trial<'d> {
    /// A trial on the scale of `reference`.
    pub fn new(decider: &'d Decider, reference: Reference) -> Self {
        Self { decider, statistics: Statistics::new(Arc::new(reference)), canary: 0 }
    }

    /// Records a request at this time of the trial, and decides.
    pub fn observe(
        &mut self,
        share: Share,
        observation: &Observation,
        course: impl Into<Course>,
    ) -> Decision {
        self.statistics.record(share, observation);
        if observation.arm != Arm::Canary {
            return Decision::Continue;
        }
        self.canary += 1;
        if self.canary.is_multiple_of(FULL_LOOK) {
            self.decider.decide(&self.statistics, course)
        } else if self.decider.harmful(&self.statistics) {
            Decision::Rollback
        } else {
            Decision::Continue
        }
    }

    /// Requests on the canary so far.
    pub fn canary(&self) -> u64 {
        self.canary
    }

    /// Statistics so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Runs generated traffic at `rate` requests a second until a verdict or until the
    /// canary has had `most` requests.
    pub fn run(decider: &'d Decider, mut traffic: Traffic, rate: f64, most: u64) -> (Ending, Self) {
        let sample = traffic.before(Reference::REQUESTS);
        let mut trial = Self::new(decider, Reference::new(&sample, decider.config().quantile()));
        let mut requests = 0_u64;
        loop {
            requests += 1;
            let elapsed = seconds(requests as f64 / rate);
            let decision = trial.observe(traffic.share, &traffic.request(), elapsed);
            if decision != Decision::Continue || trial.canary >= most {
                return (Ending { decision, canary: trial.canary, elapsed }, trial);
            }
        }
    }
}
