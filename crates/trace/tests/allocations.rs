//! What a request that is not recorded allocates for being traced.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use http::{HeaderMap, HeaderValue};
use outrigger_trace::{Config, Exporter, SpanKind, Tracer};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Counts what this thread asks for.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Allocations of a request with its parts, and of telling the engine about it.
fn allocations(tracer: &Tracer, headers: &HeaderMap) -> usize {
    let mut told = HeaderMap::with_capacity(8);
    let before = COUNT.get();
    let span = tracer.request("Predict", headers);
    drop([0; 3].map(|_| span.child("stage", SpanKind::Internal)));
    span.child("engine", SpanKind::Client).inject(&mut told);
    drop(span);
    COUNT.get() - before
}

#[tokio::test]
async fn a_request_that_is_not_recorded_allocates_next_to_nothing() {
    let endpoint = "http://127.0.0.1:1".to_owned();
    let (tracer, _exporter) =
        Exporter::new(Config { endpoint, ratio: 0.0, resource: Vec::new() }).unwrap();
    let mut headers = HeaderMap::new();
    // The first draw seeds the thread's generator.
    allocations(&tracer, &headers);
    assert_eq!(allocations(&tracer, &headers), 0, "the ratio is against it");
    let declined = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    headers.insert("traceparent", HeaderValue::from_str(declined).unwrap());
    headers.insert("tracestate", HeaderValue::from_static("vendor=1"));
    assert!(allocations(&tracer, &headers) <= 2, "the caller is: its headers, to be told on");
}
