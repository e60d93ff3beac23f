//! Tracing over OpenTelemetry's SDK: spans of requests and of models' lives, propagation by [W3C
//! Trace Context](https://www.w3.org/TR/trace-context/), and export to a collector by
//! [OTLP](https://opentelemetry.io/docs/specs/otlp/) over gRPC.
//!
//! A span that is not recorded does not use the SDK: no clock is read, nothing is allocated. A
//! recorded one goes through a bounded queue to the exporting thread. If the queue is full, the
//! span is dropped and counted, and nothing waits.

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
