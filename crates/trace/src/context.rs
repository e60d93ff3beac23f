//! The trace context of a request, in its headers (W3C Trace Context).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest `tracestate` that is passed on; the specification permits dropping longer ones.
const LONGEST_STATE: usize = 512;

/// The caller's decision about recording its trace.
#[derive(Debug)]
pub(crate) enum Caller {
    /// No valid trace context: a trace may begin here.
    Undecided,
    /// The caller's trace is not recorded.
    Declines(Arc<Declined>),
    /// The caller's trace is recorded; holds the caller's span.
    Records(SpanContext),
}

/// The trace headers of a trace that is not recorded, passed on unchanged.
#[derive(Debug)]
pub(crate) struct Declined {
    traceparent: HeaderValue,
    tracestate: Option<HeaderValue>,
}

impl Caller {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut all = headers.get_all(&TRACEPARENT).iter();
        let Some(traceparent) = all.next().filter(|_| all.next().is_none()) else {
            return Self::Undecided;
        };
        // Checked first because most traces are not recorded, and the propagator allocates.
        if !declines(traceparent.as_bytes()) {
            let carrier = Headers(headers);
            let context =
                TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
            let span = context.span();
            match span.span_context() {
                parent if !parent.is_valid() => return Self::Undecided,
                parent if parent.is_sampled() => return Self::Records(parent.clone()),
                _ => {}
            }
        }
        let (traceparent, tracestate) = (traceparent.clone(), state(headers).cloned());
        Self::Declines(Arc::new(Declined { traceparent, tracestate }))
    }
}

impl Declined {
    pub(crate) fn inject(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.traceparent.clone());
        if let Some(state) = &self.tracestate {
            headers.insert(TRACESTATE, state.clone());
        }
    }
}

/// Writes the trace headers of a call made within `span`.
pub(crate) fn inject(span: &SpanContext, headers: &mut HeaderMap) {
    let context = Context::new().with_remote_span_context(span.clone());
    TraceContextPropagator::new().inject_context(&context, &mut HeadersMut(headers));
}

fn state(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(&TRACESTATE).filter(|state| state.len() <= LONGEST_STATE)
}

/// Whether this is a `traceparent` of version 00 without the flag that the trace is recorded.
fn declines(traceparent: &[u8]) -> bool {
    let formed = |(at, byte): (usize, &u8)| match at {
        0 | 1 => *byte == b'0',
        2 | 35 | 52 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    let named = |id: &[u8]| id.iter().any(|digit| *digit != b'0');
    traceparent.len() == 55
        && traceparent.iter().enumerate().all(formed)
        && named(&traceparent[3..35])
        && named(&traceparent[36..52])
        && matches!(traceparent[54], b'0' | b'2' | b'4' | b'6' | b'8' | b'a' | b'c' | b'e')
}

struct Headers<'h>(&'h HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = if key == TRACESTATE { state(self.0) } else { self.0.get(key) };
        value?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'h>(&'h mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        let header = (HeaderName::try_from(key), HeaderValue::try_from(value));
        // A trace without a state gives an empty value, which is not sent.
        if let (Ok(name), Ok(value)) = header
            && !value.is_empty()
        {
            self.0.insert(name, value);
        }
    }
}
