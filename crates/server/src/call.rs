//! One call, independent of its wire format: its method, its deadline and its outcome.

mod outcome;
mod part;
mod turn;

use std::sync::{Arc, OnceLock};

use axum::http::{Extensions, HeaderMap};
use outrigger_core::{Failure, ModelKey, Reason};
use outrigger_features::Meter;
use outrigger_lifecycle::Lease;
use outrigger_trace::{Span, SpanKind};
use tokio::time::Instant;

pub(crate) use self::part::Part;
use self::{outcome::Outcome, turn::Turn};
use crate::{
    caller::Caller,
    front::{Front, Method},
    held::Held,
    metrics::{self, ServedAs, Stage},
    priority::LowPlace,
};

/// A call in progress. Clones share its state. The last clone to be dropped records the call, so
/// that calls that are cut off are counted too.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    inner: Arc<Inner>,
    part: Part,
}

#[derive(Debug)]
struct Inner {
    front: &'static Front,
    method: Method,
    started: Instant,
    deadline: Instant,
    /// An earlier deadline, if the request's body gives one.
    sooner: OnceLock<Instant>,
    held: OnceLock<Arc<Held>>,
    /// Set if it has a low priority.
    low: OnceLock<LowPlace>,
    turn: Turn,
    caller: OnceLock<Caller>,
    request_id: OnceLock<String>,
    served_by: OnceLock<ServedAs>,
    outcome: OnceLock<Outcome>,
    /// Set if the live version answered in place of a canary.
    stood_in: OnceLock<()>,
    /// The statistics of the scores in the first answer.
    sampled: OnceLock<outrigger_canary::Outcome>,
    /// Headers of the answer that name the version; most fronts have none.
    headers: OnceLock<Box<HeaderMap>>,
    span: Span,
    details: Details,
}

/// Details that are recorded only for the span, if the call is traced.
#[derive(Debug, Default)]
struct Details {
    version: OnceLock<ModelKey>,
    message: OnceLock<String>,
}

impl Call {
    /// Begins a call with the deadline `by`, traced by `span`.
    pub(crate) fn begin(
        front: &'static Front,
        method: Method,
        started: Instant,
        by: Instant,
        span: Span,
    ) -> Self {
        let inner = Inner {
            front,
            method,
            started,
            deadline: by,
            sooner: OnceLock::new(),
            held: OnceLock::new(),
            low: OnceLock::new(),
            turn: Turn::default(),
            caller: OnceLock::new(),
            request_id: OnceLock::new(),
            served_by: OnceLock::new(),
            outcome: OnceLock::new(),
            stood_in: OnceLock::new(),
            sampled: OnceLock::new(),
            headers: OnceLock::new(),
            span,
            details: Details::default(),
        };
        Self { inner: Arc::new(inner), part: Part::Main }
    }

    /// The call that the guard stored in the request's extensions.
    ///
    /// # Panics
    /// Without the guard, which runs before every handler.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().expect("the guard stands before every handler").clone()
    }

    /// The time at which the request arrived.
    pub(crate) fn started(&self) -> Instant {
        self.inner.started
    }

    /// The moment until which the caller waits.
    pub(crate) fn deadline(&self) -> Instant {
        self.inner.sooner.get().copied().unwrap_or(self.inner.deadline)
    }

    /// Records that the caller waits only until `by`, which is before the deadline.
    pub(crate) fn ends_sooner(&self, by: Instant) {
        // A request gives at most one time, so the cell is empty.
        let _ = self.inner.sooner.set(by);
    }

    /// Records the caller.
    pub(crate) fn made_by(&self, caller: Caller) {
        // The guard calls this once per call, so the cell is empty.
        let _ = self.inner.caller.set(caller);
    }

    /// The caller.
    ///
    /// # Panics
    /// Without the guard, which runs before every handler.
    pub(crate) fn caller(&self) -> &Caller {
        self.inner.caller.get().expect("the guard knows who calls")
    }

    /// Gives the call the resources that it needs to compute. They are released when the call ends
    /// and its answer has been sent.
    pub(crate) fn seat(&self, held: Arc<Held>) {
        // The guard calls this once per call, so the cell is empty.
        let _ = self.inner.held.set(held);
    }

    /// Records that the call has a low priority, and the place that it takes until it ends.
    pub(crate) fn gives_way(&self, place: LowPlace) {
        // The guard calls this once per call, so the cell is empty.
        let _ = self.inner.low.set(place);
    }

    /// True if the call has a low priority.
    pub(crate) fn is_low(&self) -> bool {
        self.inner.low.get().is_some()
    }

    /// The resources of the call.
    ///
    /// # Panics
    /// The call does not compute.
    pub(crate) fn held(&self) -> &Arc<Held> {
        self.inner.held.get().expect("the guard gives them to every call that computes")
    }

    /// Records the caller's request id, for logs.
    pub(crate) fn asked_as(&self, request_id: &str) {
        // A call has one request, so the cell is empty.
        let _ = self.inner.request_id.set(shortened(request_id).to_owned());
    }

    /// The caller's request id, cut, if it was recorded.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.inner.request_id.get().map(String::as_str)
    }

    /// Records the version that answers. Only from here on do metrics carry the model's name: a
    /// name that no version serves never becomes a label.
    pub(crate) fn served_by(&self, lease: &Lease) {
        let model = metrics::model_label(&lease.key.name);
        // One version answers a call; a second lease is for the same version.
        let _ = self.inner.served_by.set(ServedAs { model, arm: Some(lease.arm()) });
        if self.inner.span.is_recorded() {
            let _ = self.inner.details.version.set(lease.key.clone());
        }
    }

    /// Records that the live version answers in place of the canary.
    pub(crate) fn stood_in(&self) {
        // A call has at most one canary, so a second call changes nothing.
        let _ = self.inner.stood_in.set(());
    }

    /// Records statistics of the scores in the first answer that has scores.
    pub(crate) fn sample(&self, outcome: outrigger_canary::Outcome) {
        // The second answer is not part of any comparison, so it is ignored.
        let _ = self.inner.sampled.set(outcome);
    }

    /// The recorded statistics of the scores.
    pub(crate) fn sampled(&self) -> Option<outrigger_canary::Outcome> {
        self.inner.sampled.get().copied()
    }

    /// Sets the headers of the answer, which is about to be written.
    pub(crate) fn set_headers(&self, headers: HeaderMap) {
        // A call has one answer; a second one would be for the same version.
        let _ = self.inner.headers.set(Box::new(headers));
    }

    /// The headers of the answer.
    pub(crate) fn headers(&self) -> HeaderMap {
        self.inner.headers.get().map(|headers| HeaderMap::clone(headers)).unwrap_or_default()
    }

    /// Begins the span of a stage.
    pub(crate) fn stage(&self, stage: Stage) -> Span {
        self.inner.span.child(stage.as_str(), SpanKind::Internal)
    }

    /// Begins the span of a stage that another process may work on.
    pub(crate) fn request(&self, stage: Stage) -> Span {
        self.inner.span.child(stage.as_str(), SpanKind::Client)
    }
}

/// Packing is charged to the call, and ends at its deadline.
impl Meter for Call {
    fn admit(&self, bytes: u64) -> Result<(), Failure> {
        self.charge_work(bytes)
    }

    fn proceed(&self) -> Result<(), Failure> {
        match Instant::now() < self.deadline() {
            true => Ok(()),
            false => Err(Failure::new(Reason::Deadline, "the caller's deadline passed")),
        }
    }
}

/// Cuts a request id for the logs: callers choose it, of any length.
fn shortened(request_id: &str) -> &str {
    const MOST: usize = 128;
    &request_id[..request_id.floor_char_boundary(MOST)]
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
