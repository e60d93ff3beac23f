//! Requests in a canary's trial: their outcomes are recorded as evidence, and if the canary fails,
//! the live version answers.

use std::time::Duration;

use outrigger_canary::Outcome;
use outrigger_core::{Arm, Code, Failure};
use outrigger_lifecycle::{Handle, Lease};
use outrigger_proto::outrigger::v1::Degraded;
use prost::Message as _;
use tokio::time::Instant;

use crate::{call::Call, metrics};

/// The conditions of an attempt at an answer.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// The deadline of the engine's answer.
    pub(crate) deadline: Instant,
    /// The note in the answer that the live version answered in place of the canary.
    pub(crate) degraded: Option<Degraded>,
}

impl Terms {
    /// The conditions of a call that is answered without an attempt.
    pub(crate) fn of(call: &Call) -> Self {
        Self { deadline: call.deadline(), degraded: None }
    }

    /// The encoded note that the answer is degraded; empty if it is not.
    pub(crate) fn degraded(&self) -> Vec<u8> {
        self.degraded.as_ref().map(Degraded::encode_to_vec).unwrap_or_default()
    }
}

/// The attempts to answer a call: one, and a second with the live version if the canary fails and
/// the caller still waits.
///
/// A canary gets half of the caller's time, so that the live version has the other half. A first
/// answer of the live version that takes longer counts as a failure too; otherwise the comparison
/// would penalize the canary for its shorter deadline.
pub(crate) struct Attempts<'c> {
    call: &'c Call,
    lease: Lease,
    terms: Terms,
    /// The arm that the call was assigned to, if the tag has a trial.
    tried: Option<Tried<'c>>,
    /// The time since which attempts have not reached the engine.
    unsent_since: Option<Instant>,
}

impl<'c> Attempts<'c> {
    pub(crate) fn new(call: &'c Call, lease: Lease) -> Self {
        let tried = lease.is_tried().then(|| Tried::begin(call, lease.clone()));
        let canary = tried.as_ref().filter(|_| lease.arm() == Arm::Canary);
        let deadline = canary.map_or(call.deadline(), |canary| canary.by);
        let terms = Terms { deadline, degraded: None };
        Self { call, lease, terms, tried, unsent_since: None }
    }

    /// The lease of the current attempt.
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The conditions of the current attempt.
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// True if the same attempt may be made again when its version is served again. Not with a
    /// canary: live answers in its place.
    pub(crate) fn may_wait(&self) -> bool {
        self.tried.is_none() || self.lease.arm() == Arm::Live
    }

    /// The same attempt with the same version, when that is served again after its engine was lost
    /// during the run. For a trial, the call has failed.
    ///
    /// # Errors
    /// `failure` if there is no such attempt, or the failure of the version.
    pub(crate) async fn again(self, models: &Handle, failure: Failure) -> Result<Self, Failure> {
        let Self { call, lease, terms, tried, unsent_since } = self;
        // Reports the failure.
        drop(tried);
        if terms.deadline <= Instant::now() {
            return Err(failure);
        }
        let interrupted = lease.interrupted();
        // Others wait behind it for the same engine.
        call.lose_turn();
        let unsent_since = unsent_since.or_else(|| Some(Instant::now()));
        let unsent_since = unsent_since.filter(|_| !failure.is_cut_off);
        let again = models.again(&interrupted, unsent_since, terms.deadline);
        let lease = call.held().aside_for_model(again).await?;
        let lease = lease.ok_or(failure)?;
        Ok(Self { call, lease, terms, tried: None, unsent_since })
    }

    /// The final result of the call; `None` if another attempt follows.
    pub(crate) fn settle<T>(&mut self, result: Result<T, Failure>) -> Option<Result<T, Failure>> {
        let Some(tried) = &mut self.tried else { return Some(result) };
        // An engine goes on with a call whose deadline has passed.
        match Instant::now() < self.terms.deadline {
            true => self.lease.end_call(),
            false => self.lease.abandon_call(),
        }
        if self.terms.degraded.is_some() {
            tried.stood_in_for(&result);
            return Some(result);
        }
        let (Err(failure), Some(live)) = (&result, tried.lease.stand_in()) else {
            tried.ended(&result);
            return Some(result);
        };
        // Only the live version shows whether the request is at fault, so such a failure is
        // recorded after its attempt.
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

/// Whether a failure is due to the request, not to the version or the engine.
fn is_callers(failure: &Failure) -> bool {
    failure.reason.code() == Code::InvalidArgument
}

/// The outcome of a call for its arm, which is evidence in the trial. A call that is cut off counts
/// as failed.
struct Tried<'c> {
    call: &'c Call,
    lease: Lease,
    /// The deadline of the arm.
    by: Instant,
    is_reported: bool,
}

impl<'c> Tried<'c> {
    fn begin(call: &'c Call, lease: Lease) -> Self {
        let started = call.started();
        let allowed = call.deadline().saturating_duration_since(started);
        Self { call, lease, by: started + allowed / 2, is_reported: false }
    }

    fn ended<T>(&mut self, result: &Result<T, Failure>) {
        let sampled = self.call.sampled();
        match result {
            Err(failure) if is_callers(failure) => self.excuse(),
            Err(_) if sampled == Some(Outcome::NonFinite) => self.report(Outcome::NonFinite),
            Err(_) => self.failed(),
            Ok(_) if Instant::now() > self.by => self.failed(),
            Ok(_) => self.report(sampled.unwrap_or(Outcome::Empty)),
        }
    }

    /// Records the canary's outcome after the live version's attempt: a failure, unless the live
    /// version finds the request at fault too.
    fn stood_in_for<T>(&mut self, result: &Result<T, Failure>) {
        match result {
            Err(failure) if is_callers(failure) => self.excuse(),
            _ => self.failed(),
        }
    }

    fn failed(&mut self) {
        self.report(Outcome::Failed);
    }

    fn report(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.lease.observe(self.took(), outcome);
        }
    }

    fn excuse(&mut self) {
        self.is_reported = true;
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
