//! An engine that sends frames on its connections that HTTP/2 servers seldom send.

use std::{fmt::Debug, pin::pin};

use futures::future::{Either, join, join_all, select};
use outrigger_run::RunError;
use outrigger_testkit::http2::{Frame, Peer};
use outrigger_tfserving::{Client, Config};
use tokio::net::{TcpListener, TcpStream};

use crate::frames::{framed, one, scores};

/// The listener for connections.
struct Engine(TcpListener);

impl Engine {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("listens"))
    }

    /// Creates a client of this engine with one connection and up to `max_in_flight` calls.
    fn client(&self, max_in_flight: usize) -> Client {
        let address = self.0.local_addr().expect("an address").to_string();
        let config = Config { connections: 1, max_in_flight, ..Config::new(address) };
        Client::connect(config).expect("valid")
    }

    /// Accepts the next connection.
    async fn connection(&self) -> Peer<TcpStream> {
        let (stream, _) = self.0.accept().await.expect("accepts");
        Peer::server(stream).await.expect("a client")
    }
}

/// Reads frames until `count` of them are `wanted`; returns their streams.
async fn streams(
    connection: &mut Peer<TcpStream>,
    count: usize,
    wanted: fn(&Frame) -> bool,
) -> Vec<u32> {
    let mut streams = Vec::new();
    while streams.len() < count {
        let frame = connection.next().await.expect("the connection stays");
        streams.extend(wanted(&frame).then(|| frame.stream()));
    }
    streams
}

/// Answers with [`scores`].
async fn answer(connection: &mut Peer<TcpStream>, stream: u32) {
    let answer = [Frame::success(stream), Frame::body(stream, framed().to_vec())];
    connection.send(&answer).await.expect("the connection stays");
}

/// Returns the result of `engine`, and fails if one of `calls` ends first.
async fn beside<T>(
    calls: impl Future<Output: Debug> + Unpin,
    engine: impl Future<Output = T>,
) -> T {
    match select(calls, pin!(engine)).await {
        Either::Left((result, _)) => panic!("nobody has answered: {result:?}"),
        Either::Right((given, _)) => given,
    }
}

#[tokio::test]
async fn answers_to_calls_given_up_may_come_late() {
    // A number of late frames above the limit that h2 tolerates.
    const LATE: usize = 1500;
    let engine = Engine::start().await;
    let client = engine.client(2 * (LATE + 1));
    let mut kept = Box::pin(client.predict(one()));
    let (mut connection, first) = beside(&mut kept, async {
        let mut connection = engine.connection().await;
        let first = streams(&mut connection, 1, Frame::is_head).await;
        (connection, first)
    })
    .await;
    let calls = join_all((0..LATE).map(|_| client.predict(one())));
    let late = streams(&mut connection, LATE, Frame::is_head);
    for stream in beside(join(&mut kept, calls), late).await {
        answer(&mut connection, stream).await;
    }
    answer(&mut connection, first[0]).await;
    assert_eq!(kept.await.expect("answered"), [scores()]);
}

#[tokio::test]
async fn a_call_beyond_an_engines_farewell_is_made_again() {
    let engine = Engine::start().await;
    let client = engine.client(1);
    let answered = async {
        let mut connection = engine.connection().await;
        streams(&mut connection, 1, Frame::is_head).await;
        connection.send(&[Frame::farewell(0)]).await.expect("the connection stays");
        let mut connection = engine.connection().await;
        let again = streams(&mut connection, 1, Frame::is_head).await;
        answer(&mut connection, again[0]).await;
        Ok(connection)
    };
    let (result, _open) = tokio::try_join!(client.predict(one()), answered).expect("answered");
    assert_eq!(result, [scores()]);
}

#[tokio::test]
async fn a_call_that_an_engines_farewell_includes_is_not_made_again() {
    let engine = Engine::start().await;
    let client = engine.client(1);
    let (result, ()) = tokio::join!(client.predict(one()), async {
        let mut connection = engine.connection().await;
        let begun = streams(&mut connection, 1, Frame::is_head).await;
        connection.send(&[Frame::farewell(begun[0])]).await.expect("the connection stays");
    });
    let error = result.expect_err("it may have been worked on");
    assert!(matches!(error, RunError::Lost { .. }), "{error}");
}
