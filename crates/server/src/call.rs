//! One call as the surfaces see it, whatever its wire format: what it is, how
//! long it may take, and how it ended.

use std::sync::{Arc, OnceLock};

use axum::http::Extensions;
use outrigger_core::{Arm, Failure, ModelKey, ModelName, Reason};
use outrigger_lifecycle::Lease;
use outrigger_trace::{Span, SpanKind};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{
    admission::Place,
    caller::{Caller, Party},
    failure,
    front::{Front, Method},
    limits::Share,
    metrics::{self, ServedAs, Stage},
};

/// A call being answered. Clones are the same call; the last one to go writes
/// it down, so that calls cut off in the middle are counted too.
#[derive(Debug, Clone)]
pub(crate) struct Call(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    front: &'static Front,
    method: Method,
    started: Instant,
    deadline: Instant,
    place: OnceLock<(Place, Share<Party>)>,
    share: OnceLock<Share<ModelName>>,
    caller: OnceLock<Caller>,
    request_id: OnceLock<String>,
    served_by: OnceLock<ServedAs>,
    outcome: OnceLock<Outcome>,
    /// Live answered in place of a canary.
    stood_in: OnceLock<()>,
    /// What the first answer's scores were like.
    sampled: OnceLock<outrigger_canary::Outcome>,
    span: Span,
    told: Told,
}

/// What is only noted for the span, if there is one.
#[derive(Debug, Default)]
struct Told {
    version: OnceLock<ModelKey>,
    message: OnceLock<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Answered,
    Failed(Reason),
}

impl Call {
    /// A call that has to be over `by` then, told by `span`.
    pub(crate) fn begin(
        front: &'static Front,
        method: Method,
        started: Instant,
        by: Instant,
        span: Span,
    ) -> Self {
        Self(Arc::new(Inner {
            front,
            method,
            started,
            deadline: by,
            place: OnceLock::new(),
            share: OnceLock::new(),
            caller: OnceLock::new(),
            request_id: OnceLock::new(),
            served_by: OnceLock::new(),
            outcome: OnceLock::new(),
            stood_in: OnceLock::new(),
            sampled: OnceLock::new(),
            span,
            told: Told::default(),
        }))
    }

    /// The call that the guard began.
    ///
    /// # Panics
    /// Without a guard, which stands before every handler.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().expect("the guard stands before every handler").clone()
    }

    /// When the request arrived.
    pub(crate) fn started(&self) -> Instant {
        self.0.started
    }

    /// When the caller stops waiting.
    pub(crate) fn deadline(&self) -> Instant {
        self.0.deadline
    }

    /// Notes who makes the call.
    pub(crate) fn made_by(&self, caller: Caller) {
        // The guard does this once a call.
        let _ = self.0.caller.set(caller);
    }

    /// Who makes the call.
    ///
    /// # Panics
    /// Without a guard, which stands before every handler.
    pub(crate) fn caller(&self) -> &Caller {
        self.0.caller.get().expect("the guard knows who calls")
    }

    /// Gives the call its place, and its caller's share; they are free again once
    /// the call is over.
    pub(crate) fn seat(&self, place: Place, share: Share<Party>) {
        // The guard does this once a call.
        let _ = self.0.place.set((place, share));
    }

    /// Gives the call its model's share until it is over.
    pub(crate) fn count_for_model(&self, share: Share<ModelName>) {
        // A call is about one model.
        let _ = self.0.share.set(share);
    }

    /// Waits for `model` without keeping other calls from working.
    ///
    /// # Errors
    /// As [`Place::aside`].
    pub(crate) async fn wait_for<T>(
        &self,
        model: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match self.0.place.get() {
            Some((place, _)) => place.aside(model).await,
            None => model.await,
        }
    }

    /// Notes what the caller calls the request, for logs.
    pub(crate) fn asked_as(&self, request_id: &str) {
        // One request a call.
        let _ = self.0.request_id.set(shortened(request_id).to_owned());
    }

    /// Notes which servable answers. Only from here on has the call a model's
    /// name in metrics: names that nobody serves never become labels.
    pub(crate) fn served_by(&self, lease: &Lease) {
        let model = metrics::model_label(&lease.key.name);
        // A call is answered by one servable; a second lease is the same one.
        let _ = self.0.served_by.set(ServedAs { model, arm: Some(lease.arm()) });
        if self.0.span.is_recorded() {
            let _ = self.0.told.version.set(lease.key.clone());
        }
    }

    /// Notes that live answers in place of the canary.
    pub(crate) fn stood_in(&self) {
        // There is one canary to stand in for.
        let _ = self.0.stood_in.set(());
    }

    /// Notes what the scores were like, of the first answer that has some.
    pub(crate) fn sample(&self, outcome: outrigger_canary::Outcome) {
        // The second answer is not part of any comparison.
        let _ = self.0.sampled.set(outcome);
    }

    /// What was noted of the scores.
    pub(crate) fn sampled(&self) -> Option<outrigger_canary::Outcome> {
        self.0.sampled.get().copied()
    }

    /// The labels of what answers, or empty ones.
    pub(crate) fn served_as(&self) -> ServedAs {
        self.0.served_as()
    }

    /// The span of a stage that begins now.
    pub(crate) fn stage(&self, stage: Stage) -> Span {
        self.0.span.child(stage.as_str(), SpanKind::Internal)
    }

    /// The span of a request to another process.
    pub(crate) fn request(&self, name: &'static str) -> Span {
        self.0.span.child(name, SpanKind::Client)
    }

    /// Notes that the call ended with this failure, if it has not ended yet.
    pub(crate) fn failed(&self, failure: &Failure) {
        if self.0.outcome.set(Outcome::Failed(failure.reason)).is_ok() {
            self.log(failure);
            if self.0.span.is_recorded() {
                let _ = self.0.told.message.set(failure.message.clone());
            }
        }
    }

    /// Notes that the call was answered, if it has not ended yet.
    pub(crate) fn answered(&self) {
        let _ = self.0.outcome.set(Outcome::Answered);
    }

    /// Notes how the call ended, and turns a failure into a status.
    pub(crate) fn conclude<T>(&self, result: Result<T, Failure>) -> Result<T, Status> {
        match &result {
            Ok(_) => self.answered(),
            Err(failure) => self.failed(failure),
        }
        result.map_err(|failure| failure::to_status(&failure))
    }

    /// Callers' mistakes are theirs to see; a failure of ours is ours.
    fn log(&self, failure: &Failure) {
        /// One event, at the level that its kind deserves.
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    surface = self.0.front.name,
                    method = self.0.method.as_str(),
                    request.id = self.0.request_id.get().map(String::as_str),
                    trace.id = self.0.span.trace_id().map(tracing::field::display),
                    model.name = %self.served_as().model,
                    reason = failure.reason.as_str(),
                    error = %failure.message,
                    "call failed"
                )
            };
        }
        if matches!(failure.reason, Reason::Internal | Reason::ScoresInvalid) {
            say!(error);
        } else {
            say!(debug);
        }
    }
}

/// An id as far as logs show it: callers make them up, of any length.
fn shortened(request_id: &str) -> &str {
    const MOST: usize = 128;
    let end = (0..=MOST.min(request_id.len())).rev().find(|&end| request_id.is_char_boundary(end));
    &request_id[..end.unwrap_or(0)]
}

impl Inner {
    fn served_as(&self) -> ServedAs {
        let mut by = self.served_by.get().cloned().unwrap_or_default();
        if self.stood_in.get().is_some() {
            by.arm = Some(Arm::Live);
        }
        by
    }

    /// Says on the span what the call was and what came of it.
    fn tell(&mut self, by: &ServedAs, reason: &'static str) {
        let Self { span, told, .. } = self;
        if !span.is_recorded() {
            return;
        }
        span.set("outrigger.method", self.method.as_str());
        if let Some(system) = self.front.rpc_system {
            let code = self.outcome.get().map_or(Code::Cancelled, Outcome::code);
            span.set("rpc.system", system);
            span.set("rpc.grpc.status_code", i64::from(code as i32));
        }
        if let Some(version) = told.version.take() {
            span.set("outrigger.model.name", version.name.to_string());
            span.set("outrigger.model.digest", version.digest.to_string());
            span.set("outrigger.arm", by.arm());
        }
        if let Some(id) = self.request_id.take().filter(|id| !id.is_empty()) {
            span.set("outrigger.request.id", id);
        }
        if self.stood_in.get().is_some() {
            span.set("outrigger.stood_in", true);
        }
        if reason != metrics::OK {
            span.failed_with(reason, told.message.get().map_or("", String::as_str));
        }
    }
}

impl Outcome {
    fn code(&self) -> Code {
        match self {
            Self::Answered => Code::Ok,
            Self::Failed(reason) => Code::from_i32(reason.code() as i32),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let reason = match self.outcome.get() {
            Some(Outcome::Answered) => metrics::OK,
            Some(Outcome::Failed(reason)) => reason.as_str(),
            // Nobody wrote an end: the caller went away.
            None => "CANCELLED",
        };
        let by = self.served_as();
        self.tell(&by, reason);
        metrics::call_ended(&metrics::Ended {
            front: self.front,
            method: self.method,
            by,
            reason,
            took: self.started.elapsed(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_logs_are_cut_at_a_character() {
        assert_eq!(shortened("r-1"), "r-1");
        assert_eq!(shortened(&"x".repeat(20_000)).len(), 128);
        assert_eq!(shortened(&format!("x{}", "ä".repeat(100))).len(), 127);
    }
}
