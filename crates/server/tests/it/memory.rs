//! The memory that callers make the server hold: requests that arrive, and answers that nobody
//! takes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::Request;
use outrigger_proto::{
    outrigger::v1::{PredictRequest, Value, value::Kind},
    raw::unary,
};
use prost::Message as _;
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

use crate::stack::{MODEL, Stack, by_name, reason, request};

const PREDICT: &str = "/outrigger.v1.PredictionService/Predict";
const EXPLAIN: &str = "/outrigger.v1.PredictionService/Explain";

/// The smallest memory that can be configured: the account of requests has 64 MiB, that of answers
/// 25.6 MiB, and one caller gets half of them.
const SMALL: (&str, &str) = ("server.memory", "256MiB");

/// Longer than anything that a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection whose peer grants the server's answers this window.
async fn connect(
    stack: &Stack,
    window: u32,
) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let stream = TcpStream::connect(stack.addresses.grpc).await.expect("it listens");
    let mut builder = client::Builder::new();
    builder.initial_window_size(window).max_send_buffer_size(64 << 20);
    let (sender, connection) = builder.handshake::<_, Bytes>(stream).await.expect("a connection");
    (sender, tokio::spawn(connection))
}

fn post(path: &str) -> Request<()> {
    let request = Request::post(format!("http://server{path}"));
    request.header("content-type", "application/grpc").body(()).expect("a request")
}

/// The reason in a response of headers alone.
fn refused(response: &http::Response<h2::RecvStream>) -> Option<String> {
    tonic::Status::from_header_map(response.headers()).map(|status| reason(&status))
}

#[tokio::test]
async fn a_request_larger_than_a_caller_may_hold_is_too_large_on_both_surfaces() {
    let stack = Stack::with(&[SMALL]).await;
    let large = PredictRequest { request_id: "x".repeat(40 << 20), ..request(&[(1.0, 1.0)]) };
    let status = stack.predictions().predict(large).await.unwrap_err();
    assert_eq!(reason(&status), "TOO_LARGE", "{status}");
    assert!(status.message().contains("requests"), "{status}");
    let answer = reqwest::Client::new()
        .post(stack.http("/v1/predict"))
        .body(" ".repeat(40 << 20))
        .send()
        .await
        .unwrap();
    let body: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(body["error"]["reason"], "TOO_LARGE", "{body}");
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.expect("others are served");
}

#[tokio::test]
async fn bodies_are_charged_as_they_arrive_and_not_as_they_are_declared() {
    let stack = Stack::with(&[SMALL]).await;
    // Nothing is reserved for large requests after these.
    let mut client = stack.predictions();
    for _ in 0..100 {
        client.predict(request(&[(1.0, 1.0)])).await.expect("it is up");
    }
    let (sender, _connection) = connect(&stack, 1 << 20).await;
    let mut sender = sender.ready().await.unwrap();
    let mut begun = Vec::new();
    // Together these declare 1.6 GB.
    for _ in 0..100 {
        let (answer, mut body) = sender.send_request(post(PREDICT), false).unwrap();
        body.send_data(unary::prefix(16 << 20).to_vec().into(), false).unwrap();
        begun.push((answer, body));
    }
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.expect("there is room");
    // Together these send 45 MiB, and none of them ends.
    let mut answers = Vec::new();
    for (answer, mut body) in begun.drain(..).take(90) {
        body.send_data(vec![0; 512 << 10].into(), false).unwrap();
        answers.push((answer, body));
    }
    let first = futures::future::select_all(answers.iter_mut().map(|(answer, _)| answer));
    let (response, ..) = timeout(PATIENCE, first).await.expect("one is refused");
    assert_eq!(refused(&response.unwrap()).as_deref(), Some("OVERLOADED"));
    drop(answers);
    drop(sender);
}

/// A request whose explanation has 200 kilobytes: the names of features that the model does not
/// name.
fn explained() -> PredictRequest {
    let mut request = PredictRequest { model: Some(by_name(MODEL)), ..request(&[(1.0, 1.0)]) };
    for index in 0..1000 {
        let name = format!("{index:0>200}");
        request.treatments[0].features.insert(name, Value { kind: Some(Kind::Flag(true)) });
    }
    request
}

/// The frame of a message.
fn framed(request: &PredictRequest) -> Bytes {
    unary::framed(&request.encode_to_vec())
}

#[tokio::test]
async fn answers_that_nobody_takes_are_refused_at_the_bound_and_end_with_their_connection() {
    // Longer than the requests take, also on a machine that is busy.
    let stack = Stack::with(&[SMALL, ("server.send_timeout", "20s")]).await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (sender, connection) = connect(&stack, 0).await;
    let mut sender = sender.ready().await.unwrap();
    let (mut refusals, mut held) = (0, Vec::new());
    for _ in 0..80 {
        sender = sender.ready().await.unwrap();
        let (answer, mut body) = sender.send_request(post(EXPLAIN), false).unwrap();
        body.send_data(framed(&explained()), true).unwrap();
        let response = timeout(PATIENCE, answer).await.expect("headers need no window").unwrap();
        match refused(&response) {
            Some(reason) => {
                assert_eq!(reason, "OVERLOADED");
                refusals += 1;
            }
            None => held.push(response),
        }
    }
    assert!(refusals > 0 && !held.is_empty(), "{refusals} of 80, {}", held.len());
    let ended = timeout(PATIENCE, connection).await.expect("it is dropped").unwrap();
    assert!(ended.is_err() || sender.ready().await.is_err(), "the connection is gone");
    // The same caller has its share again.
    stack.predictions().explain(explained()).await.expect("there is room again");
}

#[tokio::test]
async fn a_place_is_held_until_the_answer_is_taken() {
    const SEND_TIMEOUT: Duration = Duration::from_secs(3);
    let settings = [("server.max_in_flight", "1"), ("server.send_timeout", "3s")];
    let stack = Stack::with(&settings).await;
    let (sender, connection) = connect(&stack, 0).await;
    let mut sender = sender.ready().await.unwrap();
    let began = Instant::now();
    let (answer, mut body) = sender.send_request(post(EXPLAIN), false).unwrap();
    body.send_data(framed(&explained()), true).unwrap();
    let response = timeout(PATIENCE, answer).await.expect("headers need no window").unwrap();
    assert_eq!(refused(&response), None);
    let mut client = stack.predictions();
    let waiting = timeout(PATIENCE, client.predict(request(&[(1.0, 1.0)])));
    let (answer, ended) = tokio::join!(waiting, timeout(PATIENCE, connection));
    answer.expect("an answer in time").expect("the place is free");
    assert!(began.elapsed() >= SEND_TIMEOUT, "the only place was taken until then");
    ended.expect("the connection is dropped").unwrap().ok();
}

#[tokio::test]
async fn a_caller_of_http_1_that_does_not_read_loses_its_connection() {
    use tokio::io::AsyncWriteExt as _;

    let stack = Stack::with(&[("server.send_timeout", "2s")]).await;
    let mut stream = TcpStream::connect(stack.addresses.health).await.unwrap();
    // The server stops reading when the buffers of both sockets are full of its answers.
    let ended = async {
        while stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: server\r\n\r\n").await.is_ok() {}
    };
    timeout(PATIENCE, ended).await.expect("the server closes the connection");
}
