//! Who decides what is traced.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use outrigger_proto::opentelemetry as wire;
use tokio::sync::mpsc;

use crate::{
    context::Incoming,
    metrics::{self, Outcome},
    span::{Kind, Span},
};

/// Spans that wait to be exported; further ones are dropped.
pub(crate) const QUEUE: usize = 4096;

/// Begins traces, or none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Sampling>>);

#[derive(Debug)]
struct Sampling {
    /// Traces whose id is below are recorded.
    threshold: u64,
    queue: Arc<Queue>,
}

/// The way to the exporter.
#[derive(Debug)]
pub(crate) struct Queue(mpsc::Sender<wire::Span>);

impl Queue {
    pub(crate) fn put(&self, span: wire::Span) {
        // Full, or the exporter has ended.
        if self.0.try_send(span).is_err() {
            metrics::count(Outcome::Dropped, 1);
        }
    }
}

impl Tracer {
    /// One that traces nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Whether it traces anything.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// One that records this part of the traces that begin here, 0 to 1, and where
    /// their spans come out.
    pub(crate) fn new(ratio: f64) -> (Self, mpsc::Receiver<wire::Span>) {
        let (queue, spans) = mpsc::channel(QUEUE);
        let sampling = Sampling { threshold: threshold(ratio), queue: Arc::new(Queue(queue)) };
        (Self(Some(Arc::new(sampling))), spans)
    }

    /// The span of a request that came with `headers`. A caller that is part of a
    /// trace has decided whether that is recorded; otherwise the ratio does.
    pub fn request(&self, name: &'static str, headers: &HeaderMap) -> Span {
        let Some(sampling) = &self.0 else { return Span::none() };
        match Incoming::read(headers) {
            Some(incoming) if incoming.context.sampled => {
                let trace_id = incoming.context.trace_id;
                sampling.first(name.into(), Kind::Server, trace_id, Some(incoming))
            }
            Some(incoming) => Span::passing(incoming),
            None => {
                let trace_id = trace_id();
                match sampling.takes(&trace_id) {
                    true => sampling.first(name.into(), Kind::Server, trace_id, None),
                    false => Span::none(),
                }
            }
        }
    }

    /// A trace of something rare, which is always recorded.
    pub fn begin(&self, name: impl Into<Cow<'static, str>>) -> Span {
        let Some(sampling) = &self.0 else { return Span::none() };
        sampling.first(name.into(), Kind::Internal, trace_id(), None)
    }
}

impl Sampling {
    /// Whether a trace is recorded: by the low bits of its id, which are random, so
    /// that others who go by them agree.
    fn takes(&self, trace_id: &[u8; 16]) -> bool {
        let (_, low) = trace_id.split_at(8);
        let low = u64::from_be_bytes(low.try_into().expect("eight bytes"));
        low >> 1 < self.threshold
    }

    fn first(
        &self,
        name: Cow<'static, str>,
        kind: Kind,
        trace_id: [u8; 16],
        parent: Option<Incoming>,
    ) -> Span {
        Span::first(name, kind, trace_id, parent, Arc::clone(&self.queue))
    }
}

/// As OpenTelemetry's `TraceIdRatioBased` has it: of 2^63.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn threshold(ratio: f64) -> u64 {
    (ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64
}

/// A new id; zero is none.
fn trace_id() -> [u8; 16] {
    rand::random::<u128>().max(1).to_be_bytes()
}
