//! Limits on sizes, counts, time and concurrency.

use std::time::Duration;

use outrigger_proto::{
    outrigger::v1::{BatchPredictRequest, PredictRequest, WatchModelsRequest},
    raw::unary,
};
use outrigger_testkit::engine::{Gate, Loading};
use prost::Message as _;
use tokio::{sync::mpsc, task::JoinSet};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::certificates::Mount;
use crate::stack::{MODEL, Stack, by_name, hold, linear, reason, request};

/// Holds every load of a real model at a gate; the receiver signals each arrival.
pub(crate) fn hold_loads(stack: &Stack) -> (Gate, mpsc::UnboundedReceiver<()>) {
    let gate = Gate::closed();
    let (arrived, arrivals) = mpsc::unbounded_channel();
    let held = gate.clone();
    stack.engine.on_load(move |load| {
        let file = std::fs::read(load.path.join("saved_model.pb")).unwrap_or_default();
        // The placeholder is loaded first, and must not be held.
        if file == outrigger_tfserving::placeholder() {
            return Loading::Normal;
        }
        arrived.send(()).ok();
        Loading::Held(held.clone())
    });
    (gate, arrivals)
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_too_large_on_both_surfaces() {
    let stack = Stack::with(&[("server.max_message", "64KiB")]).await;
    let large = PredictRequest { request_id: "x".repeat(100_000), ..request(&[]) };
    let status = stack.predictions().predict(large).await.unwrap_err();
    assert_eq!((reason(&status).as_str(), status.code()), ("TOO_LARGE", Code::InvalidArgument));
    let names = (0..10_000).map(|number| format!("offers/model-{number}")).collect();
    let status = stack.models().watch_models(WatchModelsRequest { names }).await.unwrap_err();
    assert_eq!(reason(&status), "TOO_LARGE", "a question about models is short");
    let answer = reqwest::Client::new()
        .post(stack.http("/v1/predict"))
        .body(" ".repeat(100_000))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 400);
    let body: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(body["error"]["reason"], "TOO_LARGE");
}

#[tokio::test]
async fn a_body_that_is_no_message_is_malformed() {
    let stack = Stack::start().await;
    for (body, expected) in [
        (&b"\x01\0\0\0\x02\x1f\x8b"[..], "compressed"),
        (b"\0\0\0\0\x09short", "ended"),
        (b"", "ended"),
        (b"\0\0\0\0\0\0\0\0\0\0", "more than one"),
    ] {
        let status = call_by_hand(&stack, "5S", body.to_vec()).await;
        assert_eq!(reason(&status), "REQUEST_MALFORMED");
        assert!(status.message().contains(expected), "{}", status.message());
    }
}

#[tokio::test]
async fn a_request_of_several_megabytes_is_served() {
    let stack = Stack::start().await;
    let large = PredictRequest { request_id: "x".repeat(20_000_000), ..request(&[(1.0, 1.0)]) };
    let response = stack.predictions().max_decoding_message_size(64 << 20).predict(large).await;
    assert_eq!(response.unwrap().into_inner().request_id.len(), 20_000_000);
}

#[tokio::test]
async fn more_treatments_than_allowed_are_refused() {
    let stack = Stack::with(&[("server.max_treatments", "3")]).await;
    stack.predictions().predict(request(&[(1.0, 1.0); 3])).await.unwrap();
    let status = stack.predictions().predict(request(&[(1.0, 1.0); 4])).await.unwrap_err();
    assert_eq!(reason(&status), "TOO_MANY_TREATMENTS");
}

#[tokio::test]
async fn a_batch_of_too_many_users_is_refused_before_its_model_is_waited_for() {
    let stack = Stack::start().await;
    let requests = vec![PredictRequest::default(); 65];
    let model = Some(by_name("offers/there-is-none"));
    let batch = BatchPredictRequest { model, requests, ..Default::default() };
    let status = stack.predictions().batch_predict(batch).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_MALFORMED");
    assert_eq!(status.message(), "65 requests in one call, at most 64 are allowed");
}

#[tokio::test]
async fn five_thousand_treatments_are_scored() {
    let stack = Stack::start().await;
    let response = stack.predictions().predict(request(&[(1.0, 1.0); 5000])).await.unwrap();
    let list = match response.into_inner().output {
        Some(outrigger_proto::outrigger::v1::predict_response::Output::Scores(list)) => list,
        other => panic!("no scores: {other:?}"),
    };
    assert_eq!(list.values, vec![2.0; 5000]);
}

#[tokio::test]
async fn an_engine_slower_than_the_deadline_ends_in_deadline() {
    let stack = Stack::start().await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (gate, _arrivals) = hold(&stack);
    let status = predict_by_hand(&stack, "1S").await;
    assert_eq!((reason(&status).as_str(), status.code()), ("DEADLINE", Code::DeadlineExceeded));

    let body = serde_json::json!({
        "model": {"name": MODEL}, "user": {}, "treatments": [{"features": {"t0": 1, "t1": 1}}]});
    let answer = reqwest::Client::new()
        .post(stack.http("/v1/predict"))
        .header("x-request-timeout", "1s")
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 504);
    gate.open();
}

/// The status of a prediction over plain HTTP/2. A gRPC client would enforce the timeout itself,
/// and discard the server's status.
async fn predict_by_hand(stack: &Stack, timeout: &str) -> Status {
    let message = request(&[(1.0, 1.0)]).encode_to_vec();
    call_by_hand(stack, timeout, [&unary::prefix(message.len())[..], &message].concat()).await
}

/// The status of a call whose body is `frame`, which should be a framed `PredictRequest`.
async fn call_by_hand(stack: &Stack, timeout: &str, frame: Vec<u8>) -> Status {
    call_by_hand_as(stack, None, timeout, frame).await
}

/// As [`call_by_hand`], with a token.
async fn call_by_hand_as(
    stack: &Stack,
    token: Option<&str>,
    timeout: &str,
    frame: Vec<u8>,
) -> Status {
    let client = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    let url = format!("http://{}/outrigger.v1.PredictionService/Predict", stack.addresses.grpc);
    let call = client.post(url).header("content-type", "application/grpc").header("te", "trailers");
    let call = match token {
        Some(token) => call.bearer_auth(token),
        None => call,
    };
    let answer = call.header("grpc-timeout", timeout).body(frame).send().await;
    Status::from_header_map(answer.expect("an answer").headers()).expect("a status in the headers")
}

#[tokio::test]
async fn a_model_that_is_not_up_by_the_deadline_is_loading_and_says_when_to_come_back() {
    let stack = Stack::start().await;
    let (gate, _arrivals) = hold_loads(&stack);
    let mut status = predict_by_hand(&stack, "1S").await;
    // A busy machine may answer only after the deadline, so the call is repeated.
    for _ in 0..20 {
        if reason(&status) != "DEADLINE" {
            break;
        }
        status = predict_by_hand(&stack, "1S").await;
    }
    assert_eq!((reason(&status).as_str(), status.code()), ("MODEL_LOADING", Code::Unavailable));
    let delay = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(delay > Duration::ZERO);
    gate.open();
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
}

#[tokio::test]
async fn beyond_the_requests_in_flight_more_wait_until_their_deadline() {
    let stack = Stack::with(&[("server.max_in_flight", "1")]).await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (gate, mut arrivals) = hold(&stack);
    let mut first = client.clone();
    let first = tokio::spawn(async move { first.predict(request(&[(1.0, 1.0)])).await });
    arrivals.recv().await.unwrap();
    let status = predict_by_hand(&stack, "1S").await;
    assert_eq!((reason(&status).as_str(), status.code()), ("OVERLOADED", Code::ResourceExhausted));
    assert!(status.message().contains("in flight"), "{}", status.message());
    let mut second = client.clone();
    let second = tokio::spawn(async move { second.predict(request(&[(1.0, 1.0)])).await });
    gate.open();
    for waited in [first, second] {
        waited.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn watches_have_a_limit_and_one_that_ends_makes_room() {
    let stack = Stack::start().await;
    let mut client = stack.models();
    let mut open = Vec::new();
    let refused = loop {
        match client.watch_models(WatchModelsRequest::default()).await {
            Ok(watch) => open.push(watch),
            Err(status) => break status,
        }
        assert!(open.len() <= 1000, "no end");
    };
    assert_eq!(reason(&refused), "OVERLOADED");
    drop(open);
    // The server notices the closed watch with a delay.
    while client.watch_models(WatchModelsRequest::default()).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn callers_of_a_slow_model_do_not_block_others() {
    const SLOW: &str = "offers/slow";
    let stack = Stack::with(&[("server.max_in_flight", "1"), ("server.max_waiting", "1")]).await;
    stack.publish(SLOW, &linear(1.0)).await;
    let mut client = stack.predictions();
    client.predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (gate, mut arrivals) = hold_loads(&stack);
    let slow = PredictRequest { model: Some(by_name(SLOW)), ..request(&[(1.0, 1.0)]) };
    let mut first = client.clone();
    let first = tokio::spawn(async move { first.predict(slow).await });
    arrivals.recv().await.expect("it is being loaded");

    client.predict(request(&[(1.0, 1.0)])).await.expect("another model is served");
    let second = PredictRequest { model: Some(by_name(SLOW)), ..request(&[(1.0, 1.0)]) };
    let status = client.predict(second).await.unwrap_err();
    assert_eq!(reason(&status), "OVERLOADED", "only one may wait");
    gate.open();
    first.await.unwrap().expect("served once it is up");
}

#[tokio::test]
async fn one_caller_and_one_model_have_no_more_places_than_they_may_and_others_wait_in_turn() {
    const OTHER: &str = "offers/other";
    let tokens = Mount::new(&[
        ("greedy", "the-token-of-greedy"),
        ("modest", "the-token-of-modest"),
        ("patient", "the-token-of-patient"),
    ]);
    let stack = Stack::with(&[
        ("auth.tokens", &tokens.path("").display().to_string()),
        ("auth.callers", r#"{"*": [predict]}"#),
        ("auth.anonymous", "[predict]"),
        ("limits.per_caller", "1"),
        ("limits.per_model", "2"),
    ])
    .await;
    stack.publish(OTHER, &linear(1.0)).await;
    let ask = |token: Option<&str>, model: &str| {
        let message = PredictRequest { model: Some(by_name(model)), ..request(&[(1.0, 1.0)]) };
        let mut request = tonic::Request::new(message);
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        let mut client = stack.predictions();
        async move { client.predict(request).await }
    };
    let [greedy, modest, patient] =
        ["the-token-of-greedy", "the-token-of-modest", "the-token-of-patient"].map(Some);
    for model in [MODEL, OTHER] {
        ask(None, model).await.expect("both are up");
    }
    let (gate, mut arrivals) = hold(&stack);
    let mut held = vec![tokio::spawn(ask(greedy, MODEL))];
    arrivals.recv().await.expect("one is under way");
    // A gRPC client would enforce the timeout itself.
    let in_a_hurry = |token: Option<&'static str>, model: &str| {
        let message = PredictRequest { model: Some(by_name(model)), ..request(&[(1.0, 1.0)]) };
        let frame = unary::framed(&message.encode_to_vec()).to_vec();
        call_by_hand_as(&stack, token, "200m", frame)
    };
    let status = in_a_hurry(greedy, OTHER).await;
    assert_eq!(reason(&status), "OVERLOADED", "one caller, one place");
    assert!(status.message().contains("one caller"), "{}", status.message());
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
    held.push(tokio::spawn(ask(modest, MODEL)));
    arrivals.recv().await.expect("another caller has a place");
    let status = in_a_hurry(None, MODEL).await;
    assert_eq!(reason(&status), "OVERLOADED", "one model, two places");
    assert!(status.message().contains("one model"), "{}", status.message());
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
    held.push(tokio::spawn(ask(None, OTHER)));
    arrivals.recv().await.expect("another model has places, strangers too");
    held.push(tokio::spawn(ask(patient, MODEL)));
    stack.until_waiting("version", 1).await;
    gate.open();
    for held in held {
        held.await.unwrap().expect("an answer");
    }
    ask(greedy, MODEL).await.expect("places are free again");
}

/// Over gRPC and HTTP, at the start of a process that knows nothing about its requests.
#[tokio::test]
async fn callers_wait_for_a_model_that_is_being_loaded_and_none_is_refused() {
    let stack = Stack::with(&[("server.memory", "256MiB")]).await;
    let (gate, mut arrivals) = hold_loads(&stack);
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let mut client = stack.predictions();
        waiting.spawn(async move {
            client.predict(request(&[(1.0, 1.0)])).await.expect("an answer");
        });
        let body = serde_json::json!({
            "model": {"name": MODEL}, "user": {}, "treatments": [{"features": {"t0": 1, "t1": 1}}]});
        let call = reqwest::Client::new().post(stack.http("/v1/predict")).json(&body);
        let call = call.header("x-request-timeout", "60s");
        waiting.spawn(async move {
            let answer = call.send().await.expect("an answer");
            assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        });
    }
    arrivals.recv().await.expect("it is being loaded");
    stack.until_waiting("model", 40).await;
    gate.open();
    while let Some(answered) = waiting.join_next().await {
        answered.expect("an answer");
    }
}
