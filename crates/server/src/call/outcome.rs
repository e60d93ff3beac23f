//! The outcome of a call, for metrics, logs and its span.

use outrigger_core::{Arm, Failure, Reason};
use tonic::{Code, Status};

use super::{Call, Inner};
use crate::{
    failure,
    metrics::{self, ServedAs},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    Failed(Reason),
}

impl Call {
    /// Records that the call ended with this failure, unless it has ended already.
    pub(crate) fn failed(&self, failure: &Failure) {
        if self.inner.outcome.set(Outcome::Failed(failure.reason)).is_ok() {
            self.log(failure);
            if self.inner.span.is_recorded() {
                let _ = self.inner.details.message.set(failure.message.clone());
            }
        }
    }

    /// Records that the call was answered, unless it has ended already.
    pub(crate) fn answered(&self) {
        let _ = self.inner.outcome.set(Outcome::Answered);
    }

    /// Records the outcome of the call, and turns a failure into a status.
    pub(crate) fn conclude<T>(&self, result: Result<T, Failure>) -> Result<T, Status> {
        match &result {
            Ok(_) => self.answered(),
            Err(failure) => self.failed(failure),
        }
        result.map_err(|failure| failure::to_status(&failure))
    }

    /// Logs a failure: the server's own at level error, others at debug, as callers see them.
    fn log(&self, failure: &Failure) {
        /// Logs one event at the given level.
        macro_rules! say {
            ($level:ident) => {
                tracing::$level!(
                    surface = self.inner.front.name,
                    method = self.inner.method.as_str(),
                    request.id = self.inner.request_id.get().map(String::as_str),
                    trace.id = self.inner.span.trace_id().map(tracing::field::display),
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

impl Inner {
    pub(super) fn served_as(&self) -> ServedAs {
        let mut by = self.served_by.get().cloned().unwrap_or_default();
        if self.stood_in.get().is_some() {
            by.arm = Some(Arm::Live);
        }
        by
    }

    /// Records the call and its outcome on the span.
    fn describe(&mut self, by: &ServedAs, reason: &'static str) {
        let Self { span, details, .. } = self;
        if !span.is_recorded() {
            return;
        }
        span.set("outrigger.method", self.method.as_str());
        if let Some(system) = self.front.rpc_system {
            let code = self.outcome.get().map_or(Code::Cancelled, Outcome::code);
            span.set("rpc.system", system);
            span.set("rpc.grpc.status_code", i64::from(code as i32));
        }
        if let Some(version) = details.version.take() {
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
            span.failed_with(reason, details.message.get().map_or("", String::as_str));
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
            // No outcome was recorded, so the caller went away before the end.
            None => metrics::CANCELLED,
        };
        match self.outcome.get() {
            Some(Outcome::Answered) => self.turn.answered(),
            Some(Outcome::Failed(Reason::Deadline)) => self.turn.missed(),
            // A caller that gives up early does so for another reason than the deadline.
            None if self.started.elapsed() >= (self.deadline - self.started) / 2 => {
                self.turn.missed();
            }
            _ => {}
        }
        let by = self.served_as();
        self.describe(&by, reason);
        metrics::call_ended(&metrics::Ended {
            front: self.front,
            method: self.method,
            by,
            reason,
            took: self.started.elapsed(),
        });
    }
}
