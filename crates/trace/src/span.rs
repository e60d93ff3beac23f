//! Spans: what was done, from when to when, and as a part of what.

use std::{
    borrow::Cow,
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderValue};
use outrigger_core::Failure;
use outrigger_proto::opentelemetry::{
    self as wire, AnyValue, KeyValue, Status, any_value, span::SpanKind, status::StatusCode,
};

use crate::{
    context::{Context, Hex, Incoming, TRACEPARENT, TRACESTATE},
    tracer::Queue,
};

/// W3C's flags, and that it is known whether the parent is elsewhere.
const FLAGS: u32 = 0x101;
const PARENT_IS_REMOTE: u32 = 0x200;
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
    /// Part of a trace that is not recorded: told on as it came.
    Passing(Arc<Incoming>),
    Recorded(Box<Recorded>),
}

struct Recorded {
    context: Context,
    tracestate: Option<HeaderValue>,
    started: Instant,
    span: wire::Span,
    queue: Arc<Queue>,
}

/// Where a span stands between this process and others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something that this process does by itself.
    Internal,
    /// The answer to a request.
    Server,
    /// A request to another process.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text; a long one is cut.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl Span {
    /// One that nobody traces.
    pub const fn none() -> Self {
        Self(State::Off)
    }

    pub(crate) fn passing(incoming: Incoming) -> Self {
        Self(State::Passing(Arc::new(incoming)))
    }

    /// The first of this process in its trace, under `parent` if that has begun
    /// elsewhere.
    pub(crate) fn first(
        name: Cow<'static, str>,
        kind: Kind,
        trace_id: [u8; 16],
        parent: Option<Incoming>,
        queue: Arc<Queue>,
    ) -> Self {
        let (parent_id, remote) = match &parent {
            Some(parent) => (parent.context.span_id.to_vec(), PARENT_IS_REMOTE),
            None => (Vec::new(), 0),
        };
        let tracestate = parent.and_then(|parent| parent.tracestate);
        Recorded::begin(name, kind, trace_id, parent_id, remote, tracestate, queue)
    }

    /// A part of this one that begins now.
    #[must_use]
    pub fn child(&self, name: impl Into<Cow<'static, str>>, kind: Kind) -> Self {
        match &self.0 {
            State::Off => Self::none(),
            State::Passing(incoming) => Self(State::Passing(Arc::clone(incoming))),
            State::Recorded(parent) => Recorded::begin(
                name.into(),
                kind,
                parent.context.trace_id,
                parent.context.span_id.to_vec(),
                0,
                parent.tracestate.clone(),
                Arc::clone(&parent.queue),
            ),
        }
    }

    /// Whether it is recorded: what is only worth saying then need not be made
    /// otherwise.
    pub fn is_recorded(&self) -> bool {
        matches!(self.0, State::Recorded(_))
    }

    /// Who it is, if it is recorded.
    pub fn context(&self) -> Option<Context> {
        match &self.0 {
            State::Recorded(recorded) => Some(recorded.context),
            _ => None,
        }
    }

    /// The trace's id in hexadecimal digits, for logs; `None` if it is not recorded.
    pub fn trace_id(&self) -> Option<impl fmt::Display + use<>> {
        struct Id([u8; 16]);
        impl fmt::Display for Id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Hex(&self.0).fmt(f)
            }
        }
        self.context().map(|context| Id(context.trace_id))
    }

    /// Sets an attribute; each should be set once.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let State::Recorded(recorded) = &mut self.0 {
            recorded.span.attributes.push(attribute(key, value.into()));
        }
    }

    /// Marks it as failed: `error.type` is the failure's reason.
    pub fn failed(&mut self, failure: &Failure) {
        self.failed_with(failure.reason.as_str(), &failure.message);
    }

    /// Marks it as failed for a reason of few.
    pub fn failed_with(&mut self, reason: &'static str, message: &str) {
        if let State::Recorded(recorded) = &mut self.0 {
            let message = cut(message.to_owned());
            recorded.span.status = Some(Status { message, code: StatusCode::Error.into() });
            recorded.span.attributes.push(attribute("error.type", reason.into()));
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
            State::Passing(incoming) => incoming.write(headers),
            State::Recorded(recorded) => {
                headers.insert(TRACEPARENT, recorded.context.header());
                if let Some(state) = &recorded.tracestate {
                    headers.insert(TRACESTATE, state.clone());
                }
            }
        }
    }
}

impl Recorded {
    fn begin(
        name: Cow<'static, str>,
        kind: Kind,
        trace_id: [u8; 16],
        parent_span_id: Vec<u8>,
        remote: u32,
        tracestate: Option<HeaderValue>,
        queue: Arc<Queue>,
    ) -> Span {
        let context = Context { trace_id, span_id: span_id(), sampled: true };
        let state = tracestate.as_ref().and_then(|state| state.to_str().ok()).unwrap_or_default();
        let kind = match kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
        };
        let span = wire::Span {
            trace_id: trace_id.to_vec(),
            span_id: context.span_id.to_vec(),
            trace_state: state.to_owned(),
            parent_span_id,
            name: name.into_owned(),
            kind: kind.into(),
            start_time_unix_nano: now(),
            flags: FLAGS | remote,
            ..wire::Span::default()
        };
        let started = Instant::now();
        Span(State::Recorded(Box::new(Self { context, tracestate, started, span, queue })))
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.span.name, self.context)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let mut span = std::mem::take(&mut self.span);
        span.end_time_unix_nano = span.start_time_unix_nano + nanos(self.started.elapsed());
        self.queue.put(span);
    }
}

pub(crate) fn attribute(key: impl Into<String>, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(cut(text.into_owned())),
        Value::Number(number) => any_value::Value::IntValue(number),
        Value::Flag(flag) => any_value::Value::BoolValue(flag),
    };
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
}

fn cut(mut text: String) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
    text
}

/// A new id; zero is none.
fn span_id() -> [u8; 8] {
    rand::random::<u64>().max(1).to_be_bytes()
}

fn now() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
