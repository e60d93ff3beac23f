//! Tests of predictions, frame by frame.

use std::{collections::HashMap, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use outrigger_core::{Reason as Why, Tensor};
use outrigger_proto::tensorflow::serving::PredictResponse;
use outrigger_run::RunError;
use outrigger_testkit::engine::{floats, to_proto};
use outrigger_tfserving::{
    Call, Client, Config,
    wire::{encode_request, encoded_len},
};
use prost::Message as _;

use crate::{
    harness::{call, id, patient, within},
    peer::{Arrived, Peer, headers, status},
};

pub(crate) fn one() -> Call {
    call(&id("m", 1), &[[1.0, 2.0]], patient())
}

pub(crate) fn scores() -> Tensor {
    floats("scores", &[1, 300], (0..300_u16).map(f32::from))
}

/// [`scores`] as a message with its prefix.
pub(crate) fn framed() -> Bytes {
    let outputs = HashMap::from([("scores".to_owned(), to_proto(&scores()))]);
    prefixed(&PredictResponse { outputs, model_spec: None }.encode_to_vec())
}

fn prefixed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.len().try_into().expect("small"));
    framed.put_slice(message);
    framed.freeze()
}

fn in_pieces(bytes: &Bytes, size: usize) -> Vec<Bytes> {
    bytes.chunks(size).map(|piece| bytes.slice_ref(piece)).collect()
}

/// The result of a prediction with this answer.
async fn answered(answer: impl FnOnce(Arrived)) -> Result<Vec<Tensor>, RunError> {
    let mut peer = Peer::start().await;
    let client = peer.client();
    let predict = client.predict(one());
    let (result, ()) = tokio::join!(predict, async { answer(peer.next().await) });
    result
}

#[tokio::test]
async fn a_request_in_pieces_equals_the_flat_encoding() {
    let mut peer = Peer::start().await;
    let client = peer.client();
    // A request that needs several of the peer's flow control windows, and many frames.
    let treatments: Vec<[f32; 2]> = (0..40_000_u16).map(|n| [f32::from(n), 0.5]).collect();
    for treatments in [&treatments[..], &treatments[..100], &[]] {
        let call = call(&id("m", 1), treatments, within(Duration::from_secs(600)));
        let mut message = Vec::with_capacity(encoded_len(&call));
        encode_request(&call, &mut message);
        let (result, ()) = tokio::join!(client.predict(call), async {
            let mut arrived = peer.next().await;
            assert_eq!(
                arrived.request.uri().path(),
                "/tensorflow.serving.PredictionService/Predict"
            );
            assert_eq!(arrived.request.headers()["content-type"], "application/grpc");
            assert!(!arrived.request.headers().contains_key("content-length"));
            assert!(arrived.body().await == prefixed(&message), "other bytes");
            arrived.answer(headers(StatusCode::OK), &[framed()], Some(status(0, "")));
        });
        assert_eq!(result.expect("answered"), [scores()]);
    }
}

#[tokio::test]
async fn an_answer_is_the_same_however_it_is_cut() {
    let framed = framed();
    for size in [1, 3, 5, 6, 100, framed.len()] {
        let mut frames = in_pieces(&framed, size);
        frames.insert(frames.len() / 2, Bytes::new());
        let result = answered(|arrived| {
            arrived.answer(headers(StatusCode::OK), &frames, Some(status(0, "")));
        });
        assert_eq!(result.await.expect("answered"), [scores()], "in pieces of {size}");
    }
}

#[tokio::test]
async fn a_status_without_a_message_is_the_status() {
    let mut alone = Response::new(());
    *alone.headers_mut() = status(3, "bad shape");
    let trailers_only = answered(|arrived| arrived.answer(alone, &[], None)).await;
    let after_headers = answered(|arrived| {
        arrived.answer(headers(StatusCode::OK), &[], Some(status(3, "bad shape")));
    });
    let after_message = answered(|arrived| {
        arrived.answer(headers(StatusCode::OK), &[framed()], Some(status(3, "bad shape")));
    });
    for result in [trailers_only, after_headers.await, after_message.await] {
        let error = result.expect_err("it failed");
        let RunError::Refused { message, .. } = &error else { panic!("{error}") };
        assert_eq!(message, "the engine refuses the input: InvalidArgument: bad shape");
    }
}

#[tokio::test]
async fn answers_other_than_one_whole_message_are_refused() {
    let whole = framed();
    let two = [whole.clone(), whole.clone()];
    let huge = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff, 1]);
    let cases = [
        (vec![], "the body ended before the message did"),
        (vec![whole.slice(..3)], "the body ended before the message did"),
        (vec![whole.slice(..100)], "the body ended before the message did"),
        (two.to_vec(), "more than one message was sent"),
        (vec![huge], "the message has 4294967295 bytes; at most 67108864 are allowed"),
        (
            vec![b"\x01\0\0\0\x01x"[..].into()],
            "the message is compressed with an encoding that is not accepted",
        ),
    ];
    for (frames, why) in cases {
        let error = answered(|arrived| {
            arrived.answer(headers(StatusCode::OK), &frames, Some(status(0, "")));
        });
        let error = error.await.expect_err("it is no answer");
        assert_eq!(error.reason(), Why::EngineFailed);
        let RunError::Answer { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.to_string(), why);
    }
}

#[tokio::test]
async fn an_answer_without_a_status_is_not_taken() {
    let cut = answered(|arrived| arrived.answer(headers(StatusCode::OK), &[framed()], None));
    let error = cut.await.expect_err("it may not be whole");
    assert!(matches!(&error, RunError::Failed { code, .. } if code == "Unknown"), "{error}");
    let trailers = Some(HeaderMap::new());
    let page = Bytes::from_static(b"\0\0\0\0\0");
    let proxy = answered(|arrived| {
        arrived.answer(headers(StatusCode::SERVICE_UNAVAILABLE), &[page], trailers);
    });
    let error = proxy.await.expect_err("nobody is there");
    assert_eq!(error.reason(), Why::Overloaded, "{error}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_says_nothing_about_the_connection() {
    let mut peer = Peer::start().await;
    let client = peer.client();
    let (result, ()) = tokio::join!(client.predict(one()), async {
        peer.next().await.break_off(framed());
    });
    let error = result.expect_err("broken off");
    assert!(matches!(error, RunError::Unavailable(_)), "{error}");
    let (result, ()) = tokio::join!(client.predict(one()), async {
        let arrived = peer.next().await;
        assert_eq!(arrived.connection, 0);
        arrived.answer(headers(StatusCode::OK), &[framed()], Some(status(0, "")));
    });
    result.expect("answered");
}

#[tokio::test]
async fn a_call_that_an_engine_does_not_take_is_made_again() {
    let mut peer = Peer::start().await;
    let client = peer.client();
    let (treatments, deadline) = ([[1.0, 2.0]; 1000], patient());
    let call = call(&id("m", 1), &treatments, deadline);
    let mut message = Vec::with_capacity(encoded_len(&call));
    encode_request(&call, &mut message);
    let answered = async {
        // Either the whole request has been sent, or only its head.
        let mut first = peer.next().await;
        first.body().await;
        first.refuse();
        peer.next().await.refuse();
        let mut arrived = peer.next().await;
        assert!(arrived.body().await == prefixed(&message), "other bytes");
        arrived.answer(headers(StatusCode::OK), &[framed()], Some(status(0, "")));
        Ok(())
    };
    let (result, ()) = tokio::try_join!(client.predict(call), answered).expect("answered");
    assert_eq!(result, [scores()]);
}

#[tokio::test]
async fn a_call_that_an_engine_never_takes_is_given_up() {
    let mut peer = Peer::start().await;
    let client = peer.client();
    let refusing = async {
        loop {
            peer.next().await.refuse();
        }
    };
    let error = tokio::select! {
        result = client.predict(one()) => result.expect_err("nobody takes it"),
        () = refusing => unreachable!(),
    };
    assert!(matches!(error, RunError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn a_closing_engine_finishes_begun_requests() {
    let mut peer = Peer::start().await;
    let client = peer.client();
    let (first, ()) = tokio::join!(client.predict(one()), async {
        let begun = peer.next().await;
        peer.leave();
        // After the client has learned that the connection closes, it uses another one.
        while served(&client, &mut peer).await == begun.connection {}
        begun.answer(headers(StatusCode::OK), &[framed()], Some(status(0, "")));
    });
    first.expect("answered");
}

/// Makes a prediction and answers it; returns the number of its connection.
async fn served(client: &Client, peer: &mut Peer) -> usize {
    let answered = async {
        let arrived = peer.next().await;
        let connection = arrived.connection;
        arrived.answer(headers(StatusCode::OK), &[framed()], Some(status(0, "")));
        Ok(connection)
    };
    let (_, connection) = tokio::try_join!(client.predict(one()), answered).expect("answered");
    connection
}

#[tokio::test]
async fn calls_that_an_engine_does_not_take_at_once_wait_for_their_turn() {
    let mut http2 = h2::server::Builder::new();
    http2.max_concurrent_streams(1);
    let mut peer = Peer::with(http2).await;
    let client = peer.client();
    // After this prediction the client knows the peer's limit: one stream at a time.
    served(&client, &mut peer).await;
    let calls = async { tokio::join!(client.predict(one()), client.predict(one())) };
    let ((first, second), ()) = tokio::join!(calls, async {
        for _ in 0..2 {
            let arrived = peer.next().await;
            arrived.answer(headers(StatusCode::OK), &[framed()], Some(status(0, "")));
        }
    });
    assert_eq!(
        (first.expect("answered"), second.expect("answered")),
        (vec![scores()], vec![scores()])
    );
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_answers_pings_may_take_its_time() {
    let mut peer = Peer::start().await;
    let client = peer.client();
    let _still = Still::begin();
    let slow = call(&id("m", 1), &[], within(Duration::from_secs(600)));
    let (result, ()) = tokio::join!(client.predict(slow), async {
        let begun = peer.next().await;
        for _ in 0..8 {
            tokio::time::advance(Duration::from_secs(35)).await;
            // The peer answers frames in order, so a ping sent before this request has been
            // answered.
            served(&client, &mut peer).await;
        }
        begun.answer(headers(StatusCode::OK), &[framed()], Some(status(0, "")));
    });
    result.expect("answered");
}

/// Stops tokio from advancing paused time. Paused time advances when all tasks wait, even for a
/// socket, but not while a blocking task runs.
struct Still {
    _end: std::sync::mpsc::Sender<()>,
}

impl Still {
    fn begin() -> Self {
        let (end, ended) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || ended.recv());
        Self { _end: end }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_does_not_answer_pings_is_gone() {
    // The system accepts connections to this listener, but nothing reads from them.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address").to_string();
    let client = Client::connect(Config::new(address)).expect("valid");
    let begun = tokio::time::Instant::now();
    let call = call(&id("m", 1), &[], within(Duration::from_secs(600)));
    let error = client.predict(call).await.expect_err("nobody is there");
    assert!(matches!(error, RunError::Lost { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60), "after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_prediction_goes_out_on_its_own_runtimes_connection() {
    let mut peer = Peer::start().await;
    // This runtime is never run, so no task spawned on it makes progress.
    let other = tokio::runtime::Builder::new_current_thread().build().expect("starts");
    let runtimes = [tokio::runtime::Handle::current(), other.handle().clone()];
    let config = Config { connections: 4, ..Config::new(peer.address()) };
    let client = Client::connect_on(config, &runtimes).expect("valid");
    for _ in 0..8 {
        served(&client, &mut peer).await;
    }
    other.shutdown_background();
}
