//! Spans: timed operations within a trace.

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue, StringValue, Value,
    trace::{
        Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, TraceId,
        Tracer as _,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};
use outrigger_core::Failure;

use crate::context::{self, Declined};

/// The longest text of an attribute or message, bytes; some texts come from callers.
const LONGEST: usize = 512;

/// An operation in progress. It ends when dropped, also when its future is cancelled.
#[derive(Debug, Default)]
pub struct Span(State);

#[derive(Debug, Default)]
enum State {
    /// Not traced.
    #[default]
    Off,
    /// Part of a trace that is not recorded; its headers are passed on.
    Passing(Arc<Declined>),
    Recorded(Box<Recorded>),
}

#[derive(Debug)]
struct Recorded {
    span: SdkSpan,
    tracer: SdkTracer,
}

/// A handle to a span, for child spans that are created elsewhere. They may outlive it.
#[derive(Debug, Clone, Default)]
pub struct Parent(Option<(SdkTracer, SpanContext)>);

impl Parent {
    /// Begins a child span.
    #[must_use]
    pub fn child(&self, name: impl Into<Cow<'static, str>>, kind: SpanKind) -> Span {
        match &self.0 {
            None => Span::none(),
            Some((tracer, span)) => Span::begin(tracer, name.into(), kind, Some(span.clone())),
        }
    }
}

impl Span {
    /// A span that is not traced.
    pub const fn none() -> Self {
        Self(State::Off)
    }

    pub(crate) fn passing(declined: Arc<Declined>) -> Self {
        Self(State::Passing(declined))
    }

    /// Begins a recorded span; without a parent, it is the first of its trace.
    pub(crate) fn begin(
        tracer: &SdkTracer,
        name: Cow<'static, str>,
        kind: SpanKind,
        parent: Option<SpanContext>,
    ) -> Self {
        let context = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(name).with_kind(kind);
        let span = tracer.build_with_context(builder, &context);
        Self(State::Recorded(Box::new(Recorded { span, tracer: tracer.clone() })))
    }

    /// Begins a child span.
    #[must_use]
    pub fn child(&self, name: impl Into<Cow<'static, str>>, kind: SpanKind) -> Self {
        match &self.0 {
            State::Off => Self::none(),
            State::Passing(declined) => Self::passing(Arc::clone(declined)),
            State::Recorded(parent) => {
                let context = parent.span.span_context().clone();
                Self::begin(&parent.tracer, name.into(), kind, Some(context))
            }
        }
    }

    /// A handle for child spans created elsewhere. Only a recorded span has such children.
    pub fn as_parent(&self) -> Parent {
        Parent(match &self.0 {
            State::Recorded(it) => Some((it.tracer.clone(), it.span.span_context().clone())),
            _ => None,
        })
    }

    /// Whether the span is recorded. Callers can skip computing attributes if it is not.
    pub fn is_recorded(&self) -> bool {
        matches!(self.0, State::Recorded(_))
    }

    /// The trace's id, for logs; `None` if the span is not recorded.
    pub fn trace_id(&self) -> Option<TraceId> {
        match &self.0 {
            State::Recorded(recorded) => Some(recorded.span.span_context().trace_id()),
            _ => None,
        }
    }

    /// Sets an attribute, at most once for each key. A long text is truncated.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let State::Recorded(recorded) = &mut self.0 {
            let value = match value.into() {
                Value::String(text) => Value::String(truncated(text)),
                value => value,
            };
            recorded.span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Marks the span as failed; `error.type` is the failure's reason.
    pub fn failed(&mut self, failure: &Failure) {
        self.failed_with(failure.reason.as_str(), &failure.message);
    }

    /// Marks the span as failed, with a reason from a small fixed set.
    pub fn failed_with(&mut self, reason: &'static str, message: &str) {
        if let State::Recorded(recorded) = &mut self.0 {
            recorded.span.set_status(Status::error(shortened(message).to_owned()));
            recorded.span.set_attribute(KeyValue::new("error.type", reason));
        }
    }

    /// Ends the span, marked as failed if the result is an error.
    pub fn end<T>(mut self, result: &Result<T, Failure>) {
        if let Err(failure) = result {
            self.failed(failure);
        }
    }

    /// Writes the span's trace headers to the request of a call made within it.
    pub fn inject(&self, headers: &mut HeaderMap) {
        match &self.0 {
            State::Off => {}
            State::Passing(declined) => declined.inject(headers),
            State::Recorded(recorded) => context::inject(recorded.span.span_context(), headers),
        }
    }
}

fn truncated(text: StringValue) -> StringValue {
    match shortened(text.as_str()) {
        whole if whole.len() == text.as_str().len() => text,
        part => part.to_owned().into(),
    }
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
