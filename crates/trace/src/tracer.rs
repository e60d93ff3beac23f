//! The tracer, which decides which requests are recorded.

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

/// Begins the spans of requests and of rare operations. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Sampling>>);

#[derive(Debug)]
struct Sampling {
    /// The sampling ratio of request traces that begin here, 0 to 1.
    ratio: f64,
    /// The SDK's tracer, which records every span it is asked to make.
    tracer: SdkTracer,
}

impl Tracer {
    /// A tracer that traces nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Creates a tracer that records this ratio of the traces that begin here, 0 to 1.
    pub(crate) fn new(provider: &SdkTracerProvider, ratio: f64) -> Self {
        let scope = InstrumentationScope::builder("outrigger");
        let scope = scope.with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = provider.tracer_with_scope(scope);
        Self(Some(Arc::new(Sampling { ratio: ratio.clamp(0.0, 1.0), tracer })))
    }

    /// Whether tracing is on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins the span of a request that came with `headers`. If the caller is part of a trace, its
    /// decision about recording is followed; otherwise the ratio decides.
    ///
    /// The decision is made here rather than by a sampler of the SDK, which would create a span for
    /// every request before it asks the sampler.
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

    /// Begins the trace of a rare operation, which is always recorded.
    pub fn begin(&self, name: impl Into<Cow<'static, str>>) -> Span {
        let Some(sampling) = &self.0 else { return Span::none() };
        Span::begin(&sampling.tracer, name.into(), SpanKind::Internal, None)
    }
}
