//! An engine at the level of HTTP/2: it shows requests as they arrive, and answers frame by frame.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::{
    Reason, RecvStream,
    server::{Builder, SendResponse},
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use outrigger_tfserving::{Client, Config};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::JoinSet,
};

pub(crate) struct Peer {
    address: String,
    arrived: mpsc::UnboundedReceiver<Arrived>,
    leave: Arc<Notify>,
    _running: JoinSet<()>,
}

/// A request whose head has arrived.
pub(crate) struct Arrived {
    /// The index of its connection, in the order of connecting.
    pub(crate) connection: usize,
    pub(crate) request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
}

impl Peer {
    pub(crate) async fn start() -> Self {
        Self::with(Builder::new()).await
    }

    pub(crate) async fn with(http2: Builder) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("an address").to_string();
        let (arrive, arrived) = mpsc::unbounded_channel();
        let leave = Arc::new(Notify::new());
        let mut running = JoinSet::new();
        running.spawn(listen(listener, http2, arrive, Arc::clone(&leave)));
        Self { address, arrived, leave, _running: running }
    }

    /// Creates a client of this peer with one connection.
    pub(crate) fn client(&self) -> Client {
        let config = Config { connections: 1, ..Config::new(&self.address) };
        Client::connect(config).expect("valid")
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> Arrived {
        self.arrived.recv().await.expect("the peer runs")
    }

    /// Announces that the open connections take no more requests.
    pub(crate) fn leave(&self) {
        self.leave.notify_waiters();
    }
}

async fn listen(
    listener: TcpListener,
    http2: Builder,
    arrive: mpsc::UnboundedSender<Arrived>,
    leave: Arc<Notify>,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let (stream, _) = listener.accept().await.expect("accepts");
        connections.spawn(serve(stream, number, http2.clone(), arrive.clone(), leave.clone()));
    }
}

async fn serve(
    stream: TcpStream,
    number: usize,
    http2: Builder,
    arrive: mpsc::UnboundedSender<Arrived>,
    leave: Arc<Notify>,
) {
    let Ok(mut connection) = http2.handshake(stream).await else { return };
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = leave.notified() => {
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(Ok((request, respond))) = accepted else { return };
        // Sending fails if the test has ended.
        let _ = arrive.send(Arrived { connection: number, request, respond });
    }
}

impl Arrived {
    /// Reads the request's body.
    pub(crate) async fn body(&mut self) -> Bytes {
        let (body, mut read) = (self.request.body_mut(), BytesMut::new());
        while let Some(data) = body.data().await {
            let data = data.expect("it arrives");
            body.flow_control().release_capacity(data.len()).expect("it was taken");
            read.extend_from_slice(&data);
        }
        read.freeze()
    }

    /// Answers with these frames and trailers; without both, with headers only.
    pub(crate) fn answer(
        mut self,
        headers: Response<()>,
        frames: &[Bytes],
        trailers: Option<HeaderMap>,
    ) {
        let is_short = frames.is_empty() && trailers.is_none();
        let mut stream = self.respond.send_response(headers, is_short).expect("open");
        for (number, frame) in frames.iter().enumerate() {
            let is_last = trailers.is_none() && number + 1 == frames.len();
            stream.send_data(frame.clone(), is_last).expect("open");
        }
        if let Some(trailers) = trailers {
            stream.send_trailers(trailers).expect("open");
        }
    }

    /// Begins an answer and breaks it off.
    pub(crate) fn break_off(mut self, frame: Bytes) {
        let mut stream = self.respond.send_response(Response::new(()), false).expect("open");
        stream.send_data(frame, false).expect("open");
        stream.send_reset(Reason::INTERNAL_ERROR);
    }

    /// Refuses the request as not processed (REFUSED_STREAM).
    pub(crate) fn refuse(mut self) {
        self.respond.send_reset(Reason::REFUSED_STREAM);
    }
}

pub(crate) fn headers(status: StatusCode) -> Response<()> {
    Response::builder().status(status).body(()).expect("valid")
}

/// Trailers with `grpc-status` and `grpc-message`.
pub(crate) fn status(code: u8, message: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    headers.insert("grpc-message", HeaderValue::from_static(message));
    headers
}
