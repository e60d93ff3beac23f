use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use outrigger_proto::raw::unary::framed;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

use super::*;
use crate::{Endpoint, Head, NoPlace, Places};

/// Counts events by kind.
#[derive(Debug, Default)]
struct Events {
    opened: AtomicUsize,
    closed: AtomicUsize,
    failed: AtomicUsize,
    lost: AtomicUsize,
    retried: AtomicUsize,
}

impl Events {
    /// The counts, in the order of the fields.
    fn counts(&self) -> [usize; 5] {
        [&self.opened, &self.closed, &self.failed, &self.lost, &self.retried]
            .map(|count| count.load(Relaxed))
    }
}

impl Observer for Events {
    fn opened(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    fn failed(&self, _: &TransportError) {
        self.failed.fetch_add(1, Relaxed);
    }

    fn lost(&self, _: &TransportError) {
        self.lost.fetch_add(1, Relaxed);
    }

    fn retried(&self) {
        self.retried.fetch_add(1, Relaxed);
    }
}

/// A server whose requests are answered by the test.
struct Server {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<(Request<RecvStream>, SendResponse<Bytes>)>,
    _running: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("an address");
        let (arrive, requests) = mpsc::unbounded_channel();
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accepts");
                let arrive = arrive.clone();
                connections.spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.expect("a client");
                    while let Some(Ok(request)) = connection.accept().await {
                        arrive.send(request).expect("the test runs");
                    }
                });
            }
        });
        Self { address, requests, _running: running }
    }

    async fn next(&mut self) -> SendResponse<Bytes> {
        self.requests.recv().await.expect("the server runs").1
    }

    /// Answers the next request with a message and `trailers`.
    async fn answer(&mut self, status: StatusCode, trailers: &[(&'static str, &'static str)]) {
        let head = Response::builder().status(status).body(()).expect("valid");
        let mut stream = self.next().await.send_response(head, false).expect("open");
        stream.send_data(framed(b"scores"), false).expect("open");
        let trailers = trailers.iter().map(|&(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        stream.send_trailers(trailers.collect()).expect("open");
    }
}

fn calls(address: SocketAddr, settings: Settings) -> (Calls<Bytes>, Arc<Events>) {
    let endpoint: Endpoint = address.to_string().parse().expect("an address");
    let events = Arc::new(Events::default());
    let observer = Arc::clone(&events) as Arc<dyn Observer>;
    (Calls::new(&endpoint, &settings, &[Handle::current()], observer), events)
}

async fn call(calls: &Calls<Bytes>) -> Result<Bytes, CallError> {
    let head = Head::new(Uri::from_static("http://localhost"), "/package.Service/Method");
    let head = || Some(head.within(Duration::from_secs(60), &HeaderMap::new()));
    calls.call(framed(b"features"), 1024, head).await
}

#[tokio::test]
async fn an_answer_is_its_message() {
    let mut server = Server::start().await;
    let (calls, events) = calls(server.address, Settings::default());
    let answer = server.answer(StatusCode::OK, &[("grpc-status", "0")]);
    let (message, ()) = tokio::join!(call(&calls), answer);
    assert_eq!(message.expect("answered"), "scores");
    assert_eq!(events.counts(), [1, 0, 0, 0, 0]);
}

#[tokio::test]
async fn an_answer_fails_with_its_status() {
    let mut server = Server::start().await;
    let (calls, _) = calls(server.address, Settings::default());
    let answer =
        server.answer(StatusCode::OK, &[("grpc-status", "8"), ("grpc-message", "too many")]);
    let (failed, ()) = tokio::join!(call(&calls), answer);
    let Err(CallError::Status(status)) = failed else { panic!("{failed:?}") };
    assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, "too many"));
}

#[tokio::test]
async fn an_answer_without_a_status_fails_with_that_of_http() {
    let mut server = Server::start().await;
    let (calls, _) = calls(server.address, Settings::default());
    let answer = server.answer(StatusCode::BAD_GATEWAY, &[]);
    let (failed, ()) = tokio::join!(call(&calls), answer);
    let Err(CallError::NoStatus(status)) = failed else { panic!("{failed:?}") };
    assert_eq!(crate::status_of_http(status).code(), tonic::Code::Unavailable);
}

#[tokio::test]
async fn a_request_that_was_refused_is_sent_again() {
    let mut server = Server::start().await;
    let (calls, events) = calls(server.address, Settings::default());
    let answer = async {
        server.next().await.send_reset(Reason::REFUSED_STREAM);
        server.answer(StatusCode::OK, &[("grpc-status", "0")]).await;
    };
    let (message, ()) = tokio::join!(call(&calls), answer);
    assert_eq!(message.expect("answered"), "scores");
    assert_eq!(events.counts(), [1, 0, 0, 0, 1]);
}

#[tokio::test]
async fn a_call_without_time_is_not_sent() {
    let server = Server::start().await;
    let (calls, _) = calls(server.address, Settings::default());
    let failed = calls.call(Bytes::new(), 0, || None).await;
    assert!(matches!(failed, Err(CallError::Deadline)), "{failed:?}");
}

#[tokio::test]
async fn a_dropped_connection_is_closed_but_not_lost() {
    let server = Server::start().await;
    let (calls, events) = calls(server.address, Settings { confirm: true, ..Settings::default() });
    calls.connected().await.expect("the server answers pings");
    drop(calls);
    // The runtime drops the connection's task in one of its next turns.
    while events.counts()[1] == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(events.counts(), [1, 1, 0, 0, 0]);
}

#[tokio::test]
async fn a_server_that_is_not_there_fails_the_first_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let window = Duration::from_secs(3600);
    let (calls, events) =
        calls(address, Settings { reconnect_window: window, ..Settings::default() });
    let error = calls.connected().await.expect_err("nobody there");
    assert!(matches!(error, TransportError::Connect(_)), "{error}");
    let [opened, _, failed, ..] = events.counts();
    assert!(opened == 0 && failed > 0, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_ping_is_not_connected_to() {
    // The system accepts connections to this listener, but nothing reads from them.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let (calls, events) = calls(address, Settings { confirm: true, ..Settings::default() });
    let error = calls.connected().await.expect_err("no answer");
    assert!(matches!(error, TransportError::ConnectTimeout), "{error}");
    assert_eq!(events.counts()[0], 0);
}

#[tokio::test]
async fn a_call_that_is_given_up_keeps_its_place_until_the_server_has_ended_it() {
    let mut server = Server::start().await;
    let (calls, _) = calls(server.address, Settings::default());
    let places = Places::new(2);
    let share = places.share();
    let other = places.share();
    let soon = || tokio::time::Instant::now() + Duration::from_secs(60);
    let place = share.enter(soon()).await.expect("a place");
    let head = Head::new(Uri::from_static("http://localhost"), "/package.Service/Method");
    let head = || Some(head.within(Duration::from_secs(60), &HeaderMap::new()));
    let call = calls.call_in(place, framed(b"features"), 1024, head);
    let mut stream = tokio::select! {
        answer = call => panic!("nobody has answered: {answer:?}"),
        stream = server.next() => stream,
    };
    assert_eq!(share.enter(soon()).await.expect_err("none is left"), NoPlace::GivenUp(1));
    drop(other.enter(soon()).await.expect("another version has its own"));
    let head = Response::builder().header("grpc-status", "4").body(()).expect("valid");
    stream.send_response(head, true).expect("it was not cancelled");
    while share.enter(soon()).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_keeps_its_place_no_longer_than_its_connection() {
    let mut server = Server::start().await;
    let (calls, _) = calls(server.address, Settings::default());
    let share = Places::new(1).share();
    let soon = || tokio::time::Instant::now() + Duration::from_secs(60);
    let place = share.enter(soon()).await.expect("a place");
    let head = Head::new(Uri::from_static("http://localhost"), "/package.Service/Method");
    let head = || Some(head.within(Duration::from_secs(60), &HeaderMap::new()));
    tokio::select! {
        answer = calls.call_in(place, framed(b"features"), 1024, head) => panic!("{answer:?}"),
        _ = server.requests.recv() => {}
    }
    drop(server);
    while share.enter(soon()).await.is_err() {
        tokio::task::yield_now().await;
    }
}
