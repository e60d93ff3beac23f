//! Requests of low priority give way to the others, and are the first to be refused.

use std::time::Duration;

use outrigger_proto::outrigger::v1::{PredictRequest, PredictResponse};
use serde_json::{Value, json};
use tonic::{Request, Status};

use crate::stack::{MODEL, Stack, hold, reason, request};
use crate::turns::{Crowd, work};

const HEADER: &str = "outrigger-priority";

fn with_priority(value: &'static str) -> Request<PredictRequest> {
    let mut request = Request::new(request(&[(1.0, 1.0)]));
    request.metadata_mut().insert(HEADER, value.parse().expect("a value"));
    request
}

async fn ask(stack: &Stack, request: Request<PredictRequest>) -> Result<PredictResponse, Status> {
    stack.predictions().predict(request).await.map(tonic::Response::into_inner)
}

/// Sends a request over HTTP, whose deadline the client leaves to the server.
async fn post(stack: &Stack, priority: &str) -> reqwest::Response {
    let treatments = json!([{"id": "a", "features": {"t0": 1, "t1": 1}}]);
    let body = json!({"model": {"name": MODEL}, "user": {"u0": 0.5}, "treatments": treatments});
    let request = reqwest::Client::new().post(stack.http("/v1/predict")).json(&body);
    let request = request.header(HEADER, priority).header("x-request-timeout", "400ms");
    request.send().await.expect("an answer")
}

/// Asserts that a request of low priority is refused at its deadline.
async fn assert_refused(stack: &Stack) {
    let answer = post(stack, "batch").await;
    assert_eq!(answer.status(), 429);
    assert!(answer.headers().contains_key("retry-after"));
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(body["error"]["reason"], "OVERLOADED");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.contains(HEADER), "{message}");
    let (_, metrics) = stack.health("/metrics").await;
    let series = r#"outrigger_requests_refused_total{limit="priority"} "#;
    let refused = metrics.lines().find_map(|line| line.strip_prefix(series));
    assert!(refused.is_some_and(|refused| refused != "0"), "{refused:?}");
}

#[tokio::test]
async fn one_of_low_priority_is_answered_if_others_leave_room() {
    let stack = Stack::start().await;
    ask(&stack, with_priority("batch")).await.expect("nobody else calls");
}

#[tokio::test]
async fn one_of_low_priority_is_refused_at_its_deadline_while_all_places_are_taken() {
    let stack = Stack::with(&[("server.max_in_flight", "1")]).await;
    ask(&stack, Request::new(request(&[(1.0, 1.0)]))).await.expect("it is up");
    let (gate, mut arrivals) = hold(&stack);
    let mut client = stack.predictions();
    let other = tokio::spawn(async move { client.predict(request(&[(1.0, 1.0)])).await });
    arrivals.recv().await.expect("it has the place");
    assert_refused(&stack).await;
    gate.open();
    other.await.expect("a task").expect("an answer");
}

#[tokio::test]
async fn one_of_low_priority_is_refused_at_its_deadline_while_its_version_is_crowded() {
    let stack = Stack::start().await;
    ask(&stack, Request::new(request(&[(1.0, 1.0)]))).await.expect("it is up");
    work(&stack, Duration::from_millis(5));
    let mut crowd = Crowd::of(&stack, 40);
    crowd.goes_on(200).await;
    assert_refused(&stack).await;
    crowd.goes_on(40).await;
}

#[tokio::test]
async fn another_priority_is_malformed_over_grpc_and_http() {
    let stack = Stack::start().await;
    let status = ask(&stack, with_priority("high")).await.expect_err("no such priority");
    assert_eq!(reason(&status), "REQUEST_MALFORMED");
    assert_eq!(post(&stack, "high").await.status(), 400);
}
