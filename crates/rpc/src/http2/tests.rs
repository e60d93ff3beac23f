use bytes::Bytes;
use futures::future::{Either, select};
use http::Response;
use hyper::client::conn::http2;
use outrigger_testkit::http2::{Announced, Peer, of_client};
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
};
use tonic::body::Body;

use super::*;
use crate::Http2;

/// The defaults of gRPC's servers: the least time between two pings without data, and the number of
/// earlier pings after which another one ends the connection.
const LEAST: Duration = Duration::from_secs(300);
const STRIKES: usize = 2;
/// The longest time between two pings while a call waits.
const MOST: Duration = Duration::from_secs(360);

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

/// Answers pings, and reports the time of each.
fn answer_pings(stream: DuplexStream) -> mpsc::UnboundedReceiver<Instant> {
    let (report, pings) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut peer = Peer::server(stream).await.expect("HTTP/2");
        while peer.ping().await.is_ok() && report.send(Instant::now()).is_ok() {}
    });
    pings
}

#[tokio::test(start_paused = true)]
async fn pings_during_a_call_of_hours_are_within_the_limits_of_grpc_servers() {
    let (ours, theirs) = duplex(1 << 20);
    let (mut received, traffic) = (answer_pings(theirs), Arc::<Traffic>::default());
    let settings = Settings { confirm: true, ..Settings::default() };
    let connected = Requests::<Bytes>::handshake(ours, &settings, Arc::clone(&traffic)).await;
    let (_sender, mut driven) = connected.expect("the peer answers");
    let call = traffic.enter();
    for calls in 0..3 {
        let began = Instant::now();
        let lost = timeout(Duration::from_secs(3 * 3600), &mut driven).await;
        assert!(lost.is_err(), "the connection is lost");
        let pings: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
        let pauses: Vec<_> = pings.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let strikes = pauses.iter().filter(|pause| **pause < LEAST).count();
        assert!(strikes < STRIKES, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= MOST), "{pauses:?}");
        // The first connection begins with a ping.
        let soon = pings[usize::from(calls == 0)];
        assert!(soon - began <= 2 * PING_AFTER, "{:?}", soon - began);
        // The server has sent data, and another call waits.
        call.answered();
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_lost() {
    let (ours, theirs) = duplex(1 << 20);
    let (traffic, began) = (Arc::<Traffic>::default(), Instant::now());
    let settings = Settings::default();
    let connected = Requests::<Bytes>::handshake(ours, &settings, Arc::clone(&traffic)).await;
    let (_sender, driven) = connected.expect("there is room");
    let (_call, _peer) = (traffic.enter(), Peer::server(theirs).await.expect("HTTP/2"));
    let lost = driven.await;
    assert!(matches!(lost.error, TransportError::Silent), "{}", lost.error);
    assert_eq!(began.elapsed(), PING_AFTER + PING_TIMEOUT);
}
