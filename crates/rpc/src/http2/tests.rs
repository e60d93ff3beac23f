use bytes::Bytes;
use futures::future::{Either, select};
use http::Response;
use hyper::client::conn::http2;
use outrigger_testkit::http2::{Announced, of_client};
use tokio::io::{DuplexStream, duplex};
use tonic::body::Body;

use super::*;
use crate::Http2;

/// Connects a client to `server`, and drives the client until `server` ends.
async fn beside<S: Sender, T>(server: impl AsyncFnOnce(S, DuplexStream) -> T) -> T {
    let (ours, theirs) = duplex(1 << 20);
    let settings = Settings::default();
    let connected = S::handshake(ours, &settings, Arc::default()).await;
    let (sender, driven) = connected.expect("there is room");
    match select(std::pin::pin!(server(sender, theirs)), driven).await {
        Either::Left((result, _)) => result,
        Either::Right((lost, _)) => panic!("the connection is lost: {}", lost.error),
    }
}

async fn announced<S: Sender>() -> Announced {
    beside(async |_: S, mut theirs| of_client(&mut theirs).await.expect("HTTP/2")).await
}

#[tokio::test]
async fn the_client_announces_its_flow_control_windows() {
    let Http2 { stream_window, connection_window, frame } = Http2::default();
    let expected = Announced {
        stream_window: Some(stream_window),
        connection_window,
        frame: Some(frame),
        // No limit on headers: trailers may quote the faulty part of a request.
        headers: None,
        streams: None,
    };
    assert_eq!(announced::<Requests<Bytes>>().await, expected);
    // Hyper's default limit.
    let expected = Announced { headers: Some(16 << 10), ..expected };
    assert_eq!(announced::<http2::SendRequest<Body>>().await, expected);
}

#[tokio::test]
async fn answers_as_large_as_the_windows_are_sent_without_waiting() {
    let Http2 { stream_window, connection_window, .. } = Http2::default();
    beside(async |mut sender: Requests<Bytes>, theirs| {
        let mut builder = h2::server::Builder::new();
        builder.max_send_buffer_size(stream_window as usize);
        let mut server = builder.handshake::<_, Bytes>(theirs).await.expect("HTTP/2");
        let mut begun = Vec::new();
        for _ in 0..connection_window / stream_window {
            let request = sender.send(Request::new(()), [Bytes::new()].into_iter()).expect("open");
            let (_, mut respond) = server.accept().await.expect("open").expect("a request");
            let mut answer = respond.send_response(Response::new(()), false).expect("open");
            answer.reserve_capacity(stream_window as usize);
            assert_eq!(answer.capacity(), stream_window as usize);
            begun.push((request, answer));
        }
    })
    .await;
}
