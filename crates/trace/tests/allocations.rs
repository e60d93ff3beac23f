//! Counts the allocations that tracing costs a request that is not recorded.

use http::{HeaderMap, HeaderValue};
use outrigger_testkit::allocator::{self, Reporting};
use outrigger_trace::{Config, Exporter, SpanKind, Tracer};

#[global_allocator]
static COUNTING: Reporting = allocator::COUNTING;

/// The allocations for tracing a request with its stages, and for the trace headers of its call to
/// the engine.
fn allocations(tracer: &Tracer, headers: &HeaderMap) -> usize {
    let mut injected = HeaderMap::with_capacity(8);
    let before = allocator::allocations();
    let span = tracer.request("Predict", headers);
    drop([0; 3].map(|_| span.child("stage", SpanKind::Internal)));
    span.child("engine", SpanKind::Client).inject(&mut injected);
    drop(span);
    allocator::allocations() - before
}

#[tokio::test]
async fn a_request_that_is_not_recorded_allocates_at_most_twice() {
    let endpoint = "http://127.0.0.1:1".to_owned();
    let (tracer, _exporter) =
        Exporter::new(Config { endpoint, ratio: 0.0, resource: Vec::new() }).unwrap();
    let mut headers = HeaderMap::new();
    // The first request seeds the thread's random generator, which allocates.
    allocations(&tracer, &headers);
    assert_eq!(allocations(&tracer, &headers), 0, "not sampled");
    let declined = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    headers.insert("traceparent", HeaderValue::from_str(declined).unwrap());
    headers.insert("tracestate", HeaderValue::from_static("vendor=1"));
    assert!(allocations(&tracer, &headers) <= 2, "the caller's headers are copied to be passed on");
}
