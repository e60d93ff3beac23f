use http::{HeaderMap, HeaderValue};
use outrigger_core::{Failure, Reason};
use outrigger_proto::opentelemetry::{self as wire, any_value, status::StatusCode};
use tokio::sync::mpsc;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn from(traceparent: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", HeaderValue::from_str(traceparent).unwrap());
    headers.insert("tracestate", HeaderValue::from_static("vendor=1"));
    headers
}

fn injected(span: &Span) -> HeaderMap {
    let mut headers = HeaderMap::new();
    span.inject(&mut headers);
    headers
}

fn out(spans: &mut mpsc::Receiver<wire::Span>) -> wire::Span {
    spans.try_recv().expect("a span that has ended")
}

#[test]
fn nothing_is_traced_when_nobody_asked_for_it() {
    let span = Tracer::off().request("Predict", &from(PARENT));
    assert!(!span.is_recorded() && injected(&span).is_empty());
}

#[test]
fn a_caller_s_trace_goes_on_whatever_the_ratio() {
    let (tracer, mut spans) = Tracer::new(0.0);
    let request = tracer.request("Predict", &from(PARENT));
    let call = request.child("call", Kind::Client);
    let told = injected(&call);
    drop((call, request));
    let (call, request) = (out(&mut spans), out(&mut spans));
    assert_eq!(request.parent_span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    assert_eq!((&call.trace_id, &call.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(
        (call.trace_state.as_str(), &told["tracestate"]),
        ("vendor=1", &HeaderValue::from_static("vendor=1"))
    );
    let told = told["traceparent"].to_str().unwrap();
    let span_id: String = call.span_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(told, format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span_id}-01"));
    assert!(request.start_time_unix_nano <= call.start_time_unix_nano);
    assert_eq!([request.flags, call.flags], [0x301, 0x101]);
}

#[test]
fn a_trace_that_its_caller_does_not_record_is_told_on_as_it_came() {
    let (tracer, mut spans) = Tracer::new(1.0);
    let headers = from(&PARENT.replace("-01", "-00"));
    let span = tracer.request("Predict", &headers);
    assert_eq!(injected(&span.child("call", Kind::Client)), headers);
    drop(span);
    assert!(spans.try_recv().is_err());
}

#[test]
fn the_ratio_decides_about_traces_that_begin_here() {
    let recorded = |ratio| {
        let (tracer, _spans) = Tracer::new(ratio);
        let nothing = HeaderMap::new();
        (0..2000).filter(|_| tracer.request("Predict", &nothing).is_recorded()).count()
    };
    assert_eq!([recorded(0.0), recorded(1.0)], [0, 2000]);
    assert!((300..700).contains(&recorded(0.25)), "a quarter, more or less");
    let (tracer, _spans) = Tracer::new(0.0);
    assert!(tracer.begin("bring up").is_recorded(), "what is rare always is");
}

#[test]
fn a_failure_marks_the_span_with_its_reason() {
    let (tracer, mut spans) = Tracer::new(1.0);
    let failure = Failure::new(Reason::EngineFailed, "é".repeat(1000));
    tracer.begin("pull").end(&Err::<(), _>(failure));
    let span = out(&mut spans);
    let status = span.status.unwrap();
    assert_eq!(status.code(), StatusCode::Error);
    assert_eq!(status.message, "é".repeat(256), "cut, at a character");
    let value = span.attributes[0].value.clone().unwrap().value.unwrap();
    assert_eq!(span.attributes[0].key, "error.type");
    assert_eq!(value, any_value::Value::StringValue("ENGINE_FAILED".to_owned()));
}

#[test]
fn a_full_queue_drops_spans_and_nobody_waits() {
    let (tracer, mut spans) = Tracer::new(1.0);
    for _ in 0..2 * QUEUE {
        drop(tracer.begin("pull"));
    }
    assert_eq!(std::iter::from_fn(|| spans.try_recv().ok()).count(), QUEUE);
    drop(spans);
    drop(tracer.begin("pull"));
}
