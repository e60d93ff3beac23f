//! Requests that are part of a canary's trial: what becomes of them is told, and
//! where the canary does not answer, live does.

use std::time::Duration;

use outrigger_canary::Outcome;
use outrigger_core::{Arm, Code, Failure};
use outrigger_lifecycle::Lease;
use outrigger_proto::outrigger::v1::Degraded;
use prost::Message as _;
use tokio::time::Instant;

use crate::{call::Call, metrics};

/// What an attempt at an answer has to keep to.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// When the engine has to have answered.
    pub(crate) deadline: Instant,
    /// What the answer has to say about itself.
    pub(crate) degraded: Option<Degraded>,
}

impl Terms {
    /// What the answer has to say about itself, encoded; empty if nothing.
    pub(crate) fn degraded(&self) -> Vec<u8> {
        self.degraded.as_ref().map(Degraded::encode_to_vec).unwrap_or_default()
    }
}

/// The attempts at an answer to a call: one, and a second with live where the
/// canary fails, as long as the caller waits.
///
/// A canary has half of the caller's time, so that live has the other half. An
/// answer of live that takes longer counts as a failure just as well, or the
/// canary would be worse for having less time.
pub(crate) struct Attempts<'c> {
    call: &'c Call,
    lease: Lease,
    terms: Terms,
    /// The arm that the call was assigned to, if there are arms.
    tried: Option<Tried<'c>>,
}

impl<'c> Attempts<'c> {
    pub(crate) fn new(call: &'c Call, lease: Lease) -> Self {
        let tried = lease.is_tried().then(|| Tried::begin(call, lease.clone()));
        let canary = tried.as_ref().filter(|_| lease.arm() == Arm::Canary);
        let deadline = canary.map_or(call.deadline(), |canary| canary.by);
        Self { call, lease, terms: Terms { deadline, degraded: None }, tried }
    }

    /// What is to be used now.
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// What is to be kept to now.
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What the call gets; `None` for another attempt.
    pub(crate) fn settle<T>(&mut self, result: Result<T, Failure>) -> Option<Result<T, Failure>> {
        let Some(tried) = &mut self.tried else { return Some(result) };
        if self.terms.degraded.is_some() {
            tried.stood_in_for(&result);
            return Some(result);
        }
        let (Err(failure), Some(live)) = (&result, tried.lease.stand_in()) else {
            tried.ended(&result);
            return Some(result);
        };
        // Whether the caller is at fault, only another model can tell.
        if !is_callers(failure) {
            tried.ended(&result);
        }
        self.call.stood_in();
        metrics::stood_in(&self.call.served_as());
        let degraded = Degraded { reason: failure.reason.to_string(), used: "live".to_owned() };
        self.terms = Terms { deadline: self.call.deadline(), degraded: Some(degraded) };
        self.lease = live;
        None
    }
}

/// Whether a failure is that of the request, not that of what should answer it.
fn is_callers(failure: &Failure) -> bool {
    failure.reason.code() == Code::InvalidArgument
}

/// What an arm did for a call; one that is cut off has failed.
struct Tried<'c> {
    call: &'c Call,
    lease: Lease,
    /// When it has to be over.
    by: Instant,
    told: bool,
}

impl<'c> Tried<'c> {
    fn begin(call: &'c Call, lease: Lease) -> Self {
        let started = call.started();
        let allowed = call.deadline().saturating_duration_since(started);
        Self { call, lease, by: started + allowed / 2, told: false }
    }

    fn ended<T>(&mut self, result: &Result<T, Failure>) {
        let sampled = self.call.sampled();
        match result {
            Err(failure) if is_callers(failure) => self.excuse(),
            Err(_) if sampled == Some(Outcome::NonFinite) => self.tell(Outcome::NonFinite),
            Err(_) => self.failed(),
            Ok(_) if Instant::now() > self.by => self.failed(),
            Ok(_) => self.tell(sampled.unwrap_or(Outcome::Empty)),
        }
    }

    /// Live has answered in its place, or could not do better.
    fn stood_in_for<T>(&mut self, result: &Result<T, Failure>) {
        match result {
            Err(failure) if is_callers(failure) => self.excuse(),
            _ => self.failed(),
        }
    }

    fn failed(&mut self) {
        self.tell(Outcome::Failed);
    }

    fn tell(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.told, true) {
            self.lease.observe(self.took(), outcome);
        }
    }

    fn excuse(&mut self) {
        self.told = true;
    }

    fn took(&self) -> Duration {
        self.call.started().elapsed()
    }
}

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        self.failed();
    }
}
