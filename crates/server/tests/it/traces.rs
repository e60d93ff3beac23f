//! Traces: their context comes from callers and goes to the engine, and spans go to a collector.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use outrigger_proto::outrigger::v1::PredictRequest;
use outrigger_testkit::engine::{Predicting, row_sums};
use serde_json::json;
use tonic::{Code, Request};

use crate::{
    collector::{Collector, attribute, named},
    stack::{MODEL, Stack, request},
};

const PREDICT: &str = "outrigger.v1.PredictionService/Predict";
const ENGINE: &str = "engine";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

fn is_unset(span: &Span) -> bool {
    span.status.as_ref().is_none_or(|status| status.code() == StatusCode::Unset)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A server that sends spans to the collector. It traces the fraction `ratio` of the requests whose
/// caller has made no sampling decision.
async fn traced(collector: &Collector, ratio: &str) -> Stack {
    Stack::with(&[
        ("traces.endpoint", &collector.endpoint),
        ("traces.ratio", ratio),
        ("traces.service", "scores"),
        ("traces.attributes", "deployment.environment=test"),
    ])
    .await
}

fn with_trace(flags: &str) -> Request<PredictRequest> {
    let mut sent = Request::new(request(&[(1.0, 1.0), (2.0, 2.0)]));
    sent.metadata_mut().insert("traceparent", traceparent(flags).parse().expect("a header"));
    sent.metadata_mut().insert("tracestate", "vendor=1".parse().expect("a header"));
    sent
}

/// Captures the trace headers of the last prediction that the engine received.
fn overhear(stack: &Stack) -> Arc<Mutex<[Option<String>; 2]>> {
    let heard = Arc::<Mutex<[Option<String>; 2]>>::default();
    let hear = Arc::clone(&heard);
    stack.engine.on_predict(move |prediction| {
        hear.lock().expect("nobody panics with it").clone_from(&prediction.trace);
        row_sums(prediction)
    });
    heard
}

#[tokio::test]
async fn a_caller_s_trace_goes_through_to_the_engine_with_a_span_for_each_stage() {
    let collector = Collector::start().await;
    let stack = traced(&collector, "0").await;
    let mut client = stack.predictions();
    let heard = overhear(&stack);
    client.predict(with_trace("01")).await.unwrap();
    let spans = collector.trace(PREDICT).await;
    let server = named(&spans, PREDICT);
    assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!((server.kind(), server.trace_state.as_str()), (SpanKind::Server, "vendor=1"));
    assert_eq!(attribute(server, "outrigger.model.name"), MODEL);
    assert_eq!(attribute(server, "outrigger.arm"), "live");
    assert_eq!(attribute(server, "outrigger.request.id"), "r1");
    assert_eq!(attribute(server, "rpc.grpc.status_code"), "0");
    assert!(is_unset(server));
    let mut before = server.start_time_unix_nano;
    for stage in ["queue", "decode", ENGINE, "encode"] {
        let part = named(&spans, stage);
        assert_eq!(part.parent_span_id, server.span_id, "{stage}");
        assert!(part.start_time_unix_nano >= before, "{stage} comes after those before it");
        assert!(part.end_time_unix_nano <= server.end_time_unix_nano + 1_000_000, "{stage}");
        before = part.start_time_unix_nano;
    }
    let engine = named(&spans, ENGINE);
    assert_eq!(engine.kind(), SpanKind::Client);
    assert_eq!(attribute(engine, "outrigger.engine"), "default");
    let sent = format!("00-{TRACE}-{}-01", hex(&engine.span_id));
    assert_eq!(*heard.lock().unwrap(), [Some(sent), Some("vendor=1".to_owned())]);
    assert_eq!(collector.resource("service.name").as_deref(), Some("scores"));
    assert_eq!(collector.resource("deployment.environment").as_deref(), Some("test"));
}

#[tokio::test]
async fn an_unsampled_trace_is_passed_on_without_a_span() {
    let collector = Collector::start().await;
    let stack = traced(&collector, "1").await;
    let mut client = stack.predictions();
    let heard = overhear(&stack);
    client.predict(with_trace("00")).await.unwrap();
    let on = [Some(traceparent("00")), Some("vendor=1".to_owned())];
    assert_eq!(*heard.lock().unwrap(), on);
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let spans = collector.trace(PREDICT).await;
    assert_ne!(hex(&named(&spans, PREDICT).trace_id), TRACE, "the other one");
}

#[tokio::test]
async fn http_carries_the_context_too() {
    let collector = Collector::start().await;
    let stack = traced(&collector, "0").await;
    let body = json!({
        "model": {"name": MODEL}, "user": {"u0": 0.5},
        "treatments": [{"id": "a", "features": {"t0": 1.0, "t1": 2.0}}],
    });
    let client = reqwest::Client::new();
    let asked = client.post(stack.http("/v1/predict")).header("traceparent", traceparent("01"));
    assert_eq!(asked.json(&body).send().await.unwrap().status(), 200);
    let spans = collector.trace("POST /v1/predict").await;
    let server = named(&spans, "POST /v1/predict");
    assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.into(), CALLER.into()));
    assert_eq!(named(&spans, ENGINE).parent_span_id, server.span_id);
}

#[tokio::test]
async fn failures_mark_their_spans_with_the_reason() {
    let collector = Collector::start().await;
    let stack = traced(&collector, "0").await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.expect("it comes up");
    stack.engine.on_predict(|_| Predicting::Fails(Code::Internal, "a shape".to_owned()));
    client.predict(with_trace("01")).await.expect_err("the engine fails");
    let spans = collector.trace(PREDICT).await;
    for name in [PREDICT, ENGINE] {
        let span = named(&spans, name);
        let status = span.status.as_ref().unwrap();
        assert_eq!(status.code(), StatusCode::Error, "{name}");
        assert!(status.message.contains("a shape"), "{name}: {}", status.message);
        assert_eq!(attribute(span, "error.type"), "ENGINE_FAILED", "{name}");
    }
    assert!(is_unset(named(&spans, "decode")));
}

#[tokio::test]
async fn bringing_a_model_up_is_a_trace_of_its_own() {
    let collector = Collector::start().await;
    let stack = traced(&collector, "0").await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let spans = collector.trace("bring up").await;
    let whole = named(&spans, "bring up");
    assert!(whole.parent_span_id.is_empty() && is_unset(whole));
    assert_eq!(attribute(whole, "outrigger.model.name"), MODEL);
    assert!(attribute(whole, "outrigger.model.digest").starts_with("sha256:"));
    for step in ["pull", "prepare", "publish", "load", "gate"] {
        assert_eq!(named(&spans, step).parent_span_id, whole.span_id, "{step}");
    }
    let pull = named(&spans, "pull");
    let within = |part: &Span| {
        part.parent_span_id == pull.span_id
            && part.start_time_unix_nano >= pull.start_time_unix_nano
            && part.end_time_unix_nano <= pull.end_time_unix_nano
    };
    assert!(within(named(&spans, "resolve")) && within(named(&spans, "unpack")));
    let layers: Vec<_> = spans.iter().filter(|span| span.name == "layer").collect();
    assert!(!layers.is_empty(), "{spans:?}");
    for layer in layers {
        assert!(within(layer) && is_unset(layer), "{layer:?}");
        assert!(attribute(layer, "outrigger.layer.digest").starts_with("sha256:"));
        assert_ne!(attribute(layer, "outrigger.layer.size"), "0");
    }
}

#[tokio::test]
async fn a_reload_of_the_engine_is_a_trace_of_its_own() {
    let collector = Collector::start().await;
    let stack = traced(&collector, "0").await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    // This reload is the second: before it, the engine got a configuration with no models and one
    // with a placeholder.
    let both = |reload: &Span| attribute(reload, "outrigger.versions") == "2";
    let spans = collector.trace_with("reload", both).await;
    let whole = named(&spans, "reload");
    assert!(whole.parent_span_id.is_empty() && is_unset(whole));
    assert_eq!(attribute(whole, "outrigger.models"), "1");
    let call = named(&spans, "tensorflow.serving.ModelService/HandleReloadConfigRequest");
    let wait = named(&spans, "wait");
    assert_eq!([&call.parent_span_id, &wait.parent_span_id], [&whole.span_id; 2]);
    assert!(wait.start_time_unix_nano >= call.start_time_unix_nano && is_unset(wait));
}

#[tokio::test]
async fn a_model_that_cannot_be_brought_up_says_why() {
    let collector = Collector::start().await;
    let stack = traced(&collector, "0").await;
    stack.engine.on_predict(|_| {
        Predicting::Fails(Code::FailedPrecondition, "Could not find variable w".to_owned())
    });
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap_err();
    let spans = collector.trace("bring up").await;
    for name in ["gate", "bring up"] {
        assert_eq!(attribute(named(&spans, name), "error.type"), "GOLDEN_MISMATCH", "{name}");
    }
}

#[tokio::test]
async fn a_collector_that_is_down_costs_spans_and_no_requests() {
    // No process listens on the port once `taken` is dropped.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", taken.local_addr().unwrap());
    drop(taken);
    let stack = Stack::with(&[("traces.endpoint", &endpoint), ("traces.ratio", "1")]).await;
    let mut client = stack.predictions();
    // The number of spans exceeds the queue and the messages that wait for a retry.
    for _ in 0..1200 {
        client.predict(request(&[(1.0, 1.0)])).await.expect("an answer");
    }
    let (_, text) = stack.health("/metrics").await;
    // If requests are slow, spans are counted as failed before the queue is full.
    let lost = ["dropped", "failed"].map(|outcome| {
        let series = format!("outrigger_trace_spans_total{{outcome=\"{outcome}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series))
    });
    assert!(lost.iter().flatten().any(|count| *count != "0"), "{text}");
    stack.tell_to_stop();
    stack.stopped().await.expect("it ends without the collector");
}

#[tokio::test]
async fn without_a_collector_nothing_is_sent() {
    let stack = Stack::start().await;
    let heard = overhear(&stack);
    let mut client = stack.predictions();
    client.predict(with_trace("01")).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), [None, None]);
}
