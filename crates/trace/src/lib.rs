//! Traces: spans of requests and of models' lives, over OpenTelemetry's SDK; their
//! context from and to others by [W3C Trace Context](https://www.w3.org/TR/trace-context/),
//! and their way to a collector by [OTLP](https://opentelemetry.io/docs/specs/otlp/)
//! over gRPC.
//!
//! A span that nobody records is none of the SDK's: no clock is read, nothing is
//! allocated. One that is recorded goes through a bounded queue to the thread that
//! exports it; where there is no room it is dropped and counted, and nobody waits.

mod context;
mod export;
pub mod metrics;
mod processor;
mod span;
mod tracer;

pub use export::{Config, Error, Exporter, attributes, check_endpoint};
pub use opentelemetry::{
    Value,
    trace::{SpanKind, TraceId},
};
pub use span::{Parent, Span};
pub use tracer::Tracer;
