use std::sync::Mutex;

use http::HeaderValue;
use opentelemetry::{
    Value,
    trace::{SpanId, Status, TraceId},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Sampler, SpanData, SpanExporter},
};
use outrigger_core::{Failure, Reason};

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// An exporter that collects the spans that have ended.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Kept {
    fn all<const N: usize>(&self) -> [SpanData; N] {
        self.0.lock().unwrap().clone().try_into().expect("as many spans as have ended")
    }
}

/// A tracer, and the exporter that collects its spans.
fn tracer(ratio: f64) -> (Tracer, Kept) {
    let spans = Kept::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_simple_exporter(spans.clone())
        .build();
    (Tracer::new(&provider, ratio), spans)
}

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

#[test]
fn a_tracer_that_is_off_traces_nothing() {
    let span = Tracer::off().request("Predict", &from(PARENT));
    assert!(!span.is_recorded() && injected(&span).is_empty());
}

#[test]
fn a_recorded_trace_of_a_caller_continues_at_any_ratio() {
    let (tracer, spans) = tracer(0.0);
    let request = tracer.request("Predict", &from(PARENT));
    let call = request.child("call", SpanKind::Client);
    let headers = injected(&call);
    drop((call, request));
    let [call, request] = spans.all();
    let trace = TraceId::from_hex("4bf92f3577b34da6a3ce929d0e0e4736").unwrap();
    assert_eq!(request.parent_span_id, SpanId::from_hex("00f067aa0ba902b7").unwrap());
    assert_eq!(request.span_context.trace_id(), trace);
    assert_eq!(call.span_context.trace_id(), trace);
    assert_eq!(call.parent_span_id, request.span_context.span_id());
    assert!(request.parent_span_is_remote && !call.parent_span_is_remote);
    assert_eq!(headers["tracestate"], "vendor=1");
    assert_eq!(headers["traceparent"], format!("00-{trace}-{}-01", call.span_context.span_id()));
    assert!(request.start_time <= call.start_time);
}

#[test]
fn headers_of_an_unrecorded_trace_are_passed_on_unchanged() {
    let (tracer, spans) = tracer(1.0);
    let headers = from(&PARENT.replace("-01", "-00"));
    let span = tracer.request("Predict", &headers);
    assert_eq!(injected(&span.child("call", SpanKind::Client)), headers);
    drop(span);
    let [] = spans.all();
}

#[test]
fn the_ratio_decides_about_traces_that_begin_here() {
    let recorded = |ratio| {
        let (tracer, _spans) = tracer(ratio);
        let nothing = HeaderMap::new();
        (0..2000).filter(|_| tracer.request("Predict", &nothing).is_recorded()).count()
    };
    assert_eq!([recorded(0.0), recorded(1.0)], [0, 2000]);
    assert!((300..700).contains(&recorded(0.25)), "a quarter, more or less");
    let (tracer, _spans) = tracer(0.0);
    assert!(tracer.begin("bring up").is_recorded(), "rare operations are always recorded");
}

#[test]
fn a_failure_marks_the_span_with_its_reason() {
    let (tracer, spans) = tracer(1.0);
    let failure = Failure::new(Reason::EngineFailed, "é".repeat(1000));
    tracer.begin("pull").end(&Err::<(), _>(failure));
    let [span] = spans.all();
    assert_eq!(span.status, Status::error("é".repeat(256)), "truncated at a character boundary");
    let [error] = &*span.attributes else { panic!("{:?}", span.attributes) };
    assert_eq!((error.key.as_str(), &error.value), ("error.type", &Value::from("ENGINE_FAILED")));
}

#[test]
fn a_long_text_is_truncated() {
    let (tracer, spans) = tracer(1.0);
    let mut span = tracer.begin("pull");
    span.set("outrigger.request.id", "x".repeat(20_000));
    span.set("rpc.system", "grpc");
    drop(span);
    let [span] = spans.all();
    let texts = span.attributes.iter().map(|each| each.value.to_string());
    assert_eq!(texts.collect::<Vec<_>>(), ["x".repeat(512), "grpc".to_owned()]);
}
