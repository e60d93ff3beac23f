use bytes::Bytes;
use futures::future::{Either, select};
use http::Response;
use hyper::client::conn::http2;
use outrigger_testkit::http2::{Announced, of_client};
use tokio::io::{DuplexStream, duplex};
use tonic::body::Body;

use super::*;

/// A connection whose client is driven for as long as `engine` works at the
/// other end.
async fn beside<S: Sender, T>(engine: impl AsyncFnOnce(S, DuplexStream) -> T) -> T {
    let (ours, theirs) = duplex(1 << 20);
    let (sender, driven) = S::handshake(ours, Arc::default()).await.expect("there is room");
    match select(std::pin::pin!(engine(sender, theirs)), driven).await {
        Either::Left((result, _)) => result,
        Either::Right((lost, _)) => panic!("the connection is lost: {}", lost.error),
    }
}

async fn announced<S: Sender>() -> Announced {
    beside(async |_: S, mut theirs| of_client(&mut theirs).await.expect("HTTP/2")).await
}

#[tokio::test]
async fn the_engine_is_told_how_much_it_may_send_at_once() {
    let expected = Announced {
        stream_window: Some(STREAM_WINDOW),
        connection_window: CONNECTION_WINDOW,
        frame: Some(FRAME),
        // Trailers may quote what was wrong with a request.
        headers: None,
        streams: None,
    };
    assert_eq!(announced::<Predictions>().await, expected);
    // Hyper's own choice.
    let expected = Announced { headers: Some(16 << 10), ..expected };
    assert_eq!(announced::<http2::SendRequest<Body>>().await, expected);
}

#[tokio::test]
async fn answers_as_large_as_the_windows_are_sent_without_waiting() {
    beside(async |mut sender: Predictions, theirs| {
        let mut builder = h2::server::Builder::new();
        builder.max_send_buffer_size(STREAM_WINDOW as usize);
        let mut engine = builder.handshake::<_, Bytes>(theirs).await.expect("HTTP/2");
        let mut begun = Vec::new();
        for _ in 0..CONNECTION_WINDOW / STREAM_WINDOW {
            let request = sender.send(Request::new(()), Segments::default()).expect("open");
            let (_, mut respond) = engine.accept().await.expect("open").expect("a request");
            let mut answer = respond.send_response(Response::new(()), false).expect("open");
            answer.reserve_capacity(STREAM_WINDOW as usize);
            assert_eq!(answer.capacity(), STREAM_WINDOW as usize);
            begun.push((request, answer));
        }
    })
    .await;
}
