//! Recordings of clients, cut at every byte: this listener and a small server on h2 alone treat them
//! alike.

use std::sync::{Arc, LazyLock};

use axum::body::Body as AnyBody;
use bytes::BytesMut;
use h2::server::SendResponse;
use outrigger_budget::Budget;
use outrigger_proto::raw::unary::{Bounds, framed};
use outrigger_testkit::http2;
use tokio::io::DuplexStream;

use super::{
    bodies::Bodies,
    direct::Direct,
    messages::{POST, frame, message},
    replay::{LIMIT, Outcome, Requests, alone, answered, replay},
    respond::respond,
    *,
};
use crate::{held::Held, sending::Unsent};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 99;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

/// It takes long to make.
static BUDGET: LazyLock<Budget> = LazyLock::new(|| Budget::new(1 << 30));

/// This listener. It begins as a connection does that has read the preface.
async fn ours(mut stream: DuplexStream, requests: Requests) {
    let mut first = BytesMut::new();
    if !direct::is_http2(&mut stream, &mut first).await.unwrap() {
        return;
    }
    let handler = move |request: Request<Arriving>, response: SendResponse<Bytes>| {
        let held = Held::on(&BUDGET);
        let requests = Arc::clone(&requests);
        let answer = Box::pin(async move {
            let (head, body) = request.into_parts();
            let message = body.message(&held, Bounds::plain(LIMIT)).await;
            let message = message.map(|read| read.bytes).map_err(|failure| failure.message);
            Response::new(AnyBody::from(answered(message, head.uri.path(), &requests)))
        });
        tokio::spawn(respond(answer, response));
    };
    let bodies = Bodies::new(&Unread::of(1 << 30), &Arc::<Unsent>::default());
    // The outcome shows how it ended.
    let _ = Direct::new(stream, first, bodies, |_| handler).await;
}

async fn h2_alone(stream: DuplexStream, requests: Requests) {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(STREAM_WINDOW).max_frame_size(FRAME);
    alone(stream, builder, requests).await;
}

async fn assert_same(name: &str, pieces: &[&[u8]], expected: &Outcome) {
    let lengths = || pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>();
    let outcome = replay(pieces, ours).await;
    assert_eq!(outcome, *expected, "{name}, in pieces of {:?}", lengths());
}

/// Cuts a stream at every byte, and lets it drip: its answers are always the same.
async fn check(name: &str, sent: &[u8], answers: usize) {
    let expected = replay(&[sent], h2_alone).await;
    let whole = expected.answers.values().filter(|answer| answer.is_ended).count();
    assert_eq!(whole, answers, "{name}: {expected:?}");
    for at in 0..sent.len() {
        let (before, after) = sent.split_at(at);
        assert_same(name, &[before, after], &expected).await;
    }
    let drops: Vec<_> = sent.chunks(1).collect();
    assert_same(name, &drops, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn what_clients_send_may_be_cut_at_any_byte() {
    let recorded: [(&str, &[u8]); 5] = [
        ("grpc-go", include_bytes!("recorded/go.h2")),
        ("grpc-java", include_bytes!("recorded/java.h2")),
        ("grpc-js", include_bytes!("recorded/node.h2")),
        ("grpcio", include_bytes!("recorded/python.h2")),
        ("tonic", include_bytes!("recorded/tonic.h2")),
    ];
    for (name, sent) in recorded {
        check(name, sent, 3).await;
    }
}

fn begun(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, POST)
}

/// A request whose message comes in one frame.
fn request(stream: u32, message: &[u8]) -> Vec<u8> {
    [begun(stream), frame(DATA, END_STREAM, stream, &framed(message))].concat()
}

/// The headers of a request, in three frames, with padding and a priority.
fn in_parts(stream: u32) -> Vec<u8> {
    let (one, rest) = POST.split_at(3);
    let (two, three) = rest.split_at(5);
    let first = [&[6][..], &[0, 0, 0, 0, 9], one, &[0; 6]].concat();
    [
        frame(HEADERS, PADDED | WITH_PRIORITY, stream, &first),
        frame(CONTINUATION, 0, stream, two),
        frame(CONTINUATION, END_HEADERS, stream, three),
    ]
    .concat()
}

/// The parts of a message in padded frames.
fn padded(stream: u32, message: &[u8]) -> Vec<u8> {
    let frames = framed(message).chunks(20).zip(0_u8..).fold(Vec::new(), |all, (piece, number)| {
        let padding = usize::from(number) * 3;
        let payload = [&[number * 3][..], piece, &vec![0; padding]].concat();
        [all, frame(DATA, PADDED, stream, &payload)].concat()
    });
    [frames, frame(DATA, END_STREAM, stream, &[])].concat()
}

#[tokio::test(start_paused = true)]
async fn frames_of_every_kind_may_be_cut_at_any_byte() {
    let cancel = 8_u32.to_be_bytes();
    let whole = framed(&message(60));
    let (begin, end) = whole.split_at(30);
    let kinds = [
        request(1, &message(40)),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
        in_parts(3),
        padded(3, &message(90)),
        frame(PING, 0, 0, &[7; 8]),
        // Two at once, one of which is reset.
        begun(5),
        frame(DATA, 0, 5, begin),
        begun(7),
        frame(DATA, 0, 7, begin),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]),
        frame(RST_STREAM, 0, 7, &cancel),
        frame(WINDOW_UPDATE, 0, 5, &[0, 0, 0, 9]),
        frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 9]),
        frame(DATA, END_STREAM, 5, end),
        frame(UNKNOWN, 0, 0, &[1; 20]),
        // Trailers, a message that is cut off, and one with more after it.
        begun(9),
        frame(DATA, 0, 9, &whole),
        frame(HEADERS, END_HEADERS | END_STREAM, 9, b"\x00\x01t\x01v"),
        begun(11),
        frame(DATA, END_STREAM, 11, begin),
        request(13, &message(20)),
        frame(GOAWAY, 0, 0, &[0; 8]),
    ];
    let sent = [http2::HELLO, &frame(SETTINGS, 1, 0, &[]), &kinds.concat()].concat();
    check("every kind", &sent, 6).await;
}

#[tokio::test(start_paused = true)]
async fn errors_are_the_same_at_any_cut() {
    let begun = begun(1);
    let errors: [(&str, Vec<u8>); 6] = [
        ("more padding than bytes", frame(DATA, PADDED, 1, &[9, 0])),
        ("data of a stream that never began", frame(DATA, 0, 7, &[0; 40])),
        ("data amid headers", [frame(HEADERS, 0, 3, POST), frame(DATA, 0, 1, &[0])].concat()),
        ("an update of nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a window beyond the most", frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])),
        ("a frame of the wrong length", frame(PING, 0, 0, &[0; 7])),
    ];
    for (name, error) in errors {
        let sent = [http2::HELLO, &frame(SETTINGS, 1, 0, &[]), &begun, &error].concat();
        for at in 0..sent.len() {
            let (before, after) = sent.split_at(at);
            // The cut decides if the request reaches the application before the error.
            let expected = replay(&[before, after], h2_alone).await;
            assert_ne!((expected.ended, expected.answers.len()), (None, 0), "{name}");
            assert_same(name, &[before, after], &expected).await;
        }
    }
}
