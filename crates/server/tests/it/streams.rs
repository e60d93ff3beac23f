//! Requests of one connection: the failure of some does not affect the others.

use outrigger_proto::{outrigger::v1::PredictResponse, raw::unary};
use outrigger_testkit::http2::{Frame, Peer};
use prost::Message as _;
use tokio::net::TcpStream;

use crate::stack::{Stack, hold, request};

const PREDICT: &str = "/outrigger.v1.PredictionService/Predict";

/// Opens a connection to `stack`.
async fn caller(stack: &Stack) -> Peer<TcpStream> {
    let stream = TcpStream::connect(stack.addresses.grpc).await.expect("it listens");
    stream.set_nodelay(true).expect("an open socket");
    Peer::client(stream).await.expect("an open socket")
}

/// The frames of a prediction's request.
fn prediction(stream: u32) -> [Frame; 2] {
    let message = request(&[(1.0, 1.0)]).encode_to_vec();
    [Frame::request(stream, PREDICT), Frame::body(stream, unary::framed(&message).to_vec())]
}

/// Asserts that an answer's body is a prediction.
fn assert_predicted(body: &[u8]) {
    let (_, message) = body.split_first_chunk::<{ unary::PREFIX }>().expect("a message");
    let response = PredictResponse::decode(message).expect("a response");
    assert_eq!(response.request_id, "r1");
}

/// The number of requests that all servers of this process have refused with OVERLOADED.
async fn overloaded(stack: &Stack) -> u64 {
    let (_, text) = stack.health("/metrics").await;
    let lines = text.lines().filter(|line| line.starts_with("outrigger_requests_total{"));
    let lines = lines.filter(|line| line.contains("reason=\"OVERLOADED\""));
    let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
    lines.map(|line| count(line).expect("a count")).sum()
}

#[tokio::test]
async fn bodies_of_refused_requests_may_come_late() {
    // The number exceeds h2's limit on errors of the peer. All bodies together are smaller than the
    // connection's window.
    const REFUSED: u32 = 1500;
    let stack = Stack::with(&[("server.max_in_flight", "1")]).await;
    stack.predictions().predict(request(&[(1.0, 1.0)])).await.unwrap();
    let (gate, mut arrivals) = hold(&stack);
    let before = overloaded(&stack).await;
    let mut caller = caller(&stack).await;
    caller.send(&prediction(1)).await.unwrap();
    arrivals.recv().await.unwrap();
    for stream in (1..=REFUSED).map(|number| 1 + 2 * number) {
        caller.send(&[Frame::request_within(stream, PREDICT, "1m")]).await.unwrap();
        assert_eq!(caller.answer(stream).await.unwrap(), b"", "a status alone");
        caller.send(&[Frame::body(stream, vec![0; 16 << 10])]).await.unwrap();
    }
    assert!(overloaded(&stack).await >= before + u64::from(REFUSED));
    gate.open();
    assert_predicted(&caller.answer(1).await.unwrap());
}

#[tokio::test]
async fn requests_given_up_together_take_no_other_with_them() {
    const GIVEN_UP: u32 = 30;
    let stack = Stack::start().await;
    let mut caller = caller(&stack).await;
    let given_up = (0..GIVEN_UP).map(|number| 1 + 2 * number);
    let given_up =
        given_up.flat_map(|stream| [Frame::request(stream, PREDICT), Frame::cancel(stream)]);
    let last = 1 + 2 * GIVEN_UP;
    let frames: Vec<_> = given_up.chain(prediction(last)).collect();
    caller.send(&frames).await.unwrap();
    assert_predicted(&caller.answer(last).await.unwrap());
}
