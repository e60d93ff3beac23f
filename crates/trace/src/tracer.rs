//! Who decides what is traced.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use http::HeaderMap;
use opentelemetry::{
    InstrumentationScope,
    trace::{SpanKind, TracerProvider as _},
};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::{context::Caller, span::Span};

/// Begins traces, or none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Sampling>>);

#[derive(Debug)]
struct Sampling {
    /// The part of the traces of requests that begin here, 0 to 1.
    ratio: f64,
    /// Records all that it is asked for.
    tracer: SdkTracer,
}

impl Tracer {
    /// One that traces nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// One that records this part of the traces that begin here, 0 to 1.
    pub(crate) fn new(provider: &SdkTracerProvider, ratio: f64) -> Self {
        let scope = InstrumentationScope::builder("outrigger");
        let scope = scope.with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = provider.tracer_with_scope(scope);
        Self(Some(Arc::new(Sampling { ratio: ratio.clamp(0.0, 1.0), tracer })))
    }

    /// Whether it traces anything.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The span of a request that came with `headers`. A caller that is part of a
    /// trace has decided whether that is recorded; otherwise the ratio does.
    ///
    /// That is decided here, and not by a sampler of the SDK, which would make a span
    /// of every request to ask it.
    pub fn request(&self, name: &'static str, headers: &HeaderMap) -> Span {
        let Some(sampling) = &self.0 else { return Span::none() };
        let parent = match Caller::of(headers) {
            Caller::Declines(declined) => return Span::passing(declined),
            Caller::Undecided if !rand::random_bool(sampling.ratio) => return Span::none(),
            Caller::Undecided => None,
            Caller::Records(parent) => Some(parent),
        };
        Span::begin(&sampling.tracer, name.into(), SpanKind::Server, parent)
    }

    /// A trace of something rare, which is always recorded.
    pub fn begin(&self, name: impl Into<Cow<'static, str>>) -> Span {
        let Some(sampling) = &self.0 else { return Span::none() };
        Span::begin(&sampling.tracer, name.into(), SpanKind::Internal, None)
    }
}
