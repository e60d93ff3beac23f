//! Spans: what was done, from when to when, and as a part of what.

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

/// The longest text of an attribute or a message, in bytes: callers make some up.
const LONGEST: usize = 512;

/// Something that is being done. It ends when it is dropped, also when that is
/// because nobody waits for it any more.
#[derive(Debug, Default)]
pub struct Span(State);

#[derive(Debug, Default)]
enum State {
    /// Nobody traces it.
    #[default]
    Off,
    /// Part of a trace that is not recorded.
    Passing(Arc<Declined>),
    Recorded(Box<Recorded>),
}

#[derive(Debug)]
struct Recorded {
    span: SdkSpan,
    tracer: SdkTracer,
}

/// A span as those see it who do parts of what somebody else has begun. Theirs may
/// outlive it.
#[derive(Debug, Clone, Default)]
pub struct Parent(Option<(SdkTracer, SpanContext)>);

impl Parent {
    /// A part of it that begins now.
    #[must_use]
    pub fn child(&self, name: impl Into<Cow<'static, str>>, kind: SpanKind) -> Span {
        match &self.0 {
            None => Span::none(),
            Some((tracer, span)) => Span::begin(tracer, name.into(), kind, Some(span.clone())),
        }
    }
}

impl Span {
    /// One that nobody traces.
    pub const fn none() -> Self {
        Self(State::Off)
    }

    pub(crate) fn passing(declined: Arc<Declined>) -> Self {
        Self(State::Passing(declined))
    }

    /// One that begins now, and that is recorded; the first of its trace without a
    /// parent.
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

    /// A part of this one that begins now.
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

    /// For parts of it that are done elsewhere; only what is recorded has any.
    pub fn as_parent(&self) -> Parent {
        Parent(match &self.0 {
            State::Recorded(it) => Some((it.tracer.clone(), it.span.span_context().clone())),
            _ => None,
        })
    }

    /// Whether it is recorded: what is only worth saying then need not be made
    /// otherwise.
    pub fn is_recorded(&self) -> bool {
        matches!(self.0, State::Recorded(_))
    }

    /// The trace's id, for logs; `None` if it is not recorded.
    pub fn trace_id(&self) -> Option<TraceId> {
        match &self.0 {
            State::Recorded(recorded) => Some(recorded.span.span_context().trace_id()),
            _ => None,
        }
    }

    /// Sets an attribute; each should be set once. A long text is cut.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let State::Recorded(recorded) = &mut self.0 {
            let value = match value.into() {
                Value::String(text) => Value::String(cut(text)),
                value => value,
            };
            recorded.span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Marks it as failed: `error.type` is the failure's reason.
    pub fn failed(&mut self, failure: &Failure) {
        self.failed_with(failure.reason.as_str(), &failure.message);
    }

    /// Marks it as failed for a reason of few.
    pub fn failed_with(&mut self, reason: &'static str, message: &str) {
        if let State::Recorded(recorded) = &mut self.0 {
            recorded.span.set_status(Status::error(shortened(message).to_owned()));
            recorded.span.set_attribute(KeyValue::new("error.type", reason));
        }
    }

    /// Ends it with what came of it.
    pub fn end<T>(mut self, result: &Result<T, Failure>) {
        if let Err(failure) = result {
            self.failed(failure);
        }
    }

    /// Tells whoever is asked next about it, in the headers of the request.
    pub fn inject(&self, headers: &mut HeaderMap) {
        match &self.0 {
            State::Off => {}
            State::Passing(declined) => declined.inject(headers),
            State::Recorded(recorded) => context::inject(recorded.span.span_context(), headers),
        }
    }
}

fn cut(text: StringValue) -> StringValue {
    match shortened(text.as_str()) {
        whole if whole.len() == text.as_str().len() => text,
        part => part.to_owned().into(),
    }
}

fn shortened(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}
