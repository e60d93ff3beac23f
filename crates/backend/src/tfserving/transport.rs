//! Several connections as one HTTP service.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::task::JoinSet;
use tonic::body::Body;
use tower::Service;

use super::{
    Config, Endpoint,
    connection::{Connection, InFlight},
};

/// Connections a request may find broken before it gives up.
const ATTEMPTS: usize = 3;

/// The engine could not be reached, or the connection broke.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(#[source] Arc<io::Error>),
    /// Nobody answered the attempt to connect.
    #[error("connecting took too long")]
    ConnectTimeout,
    /// The engine closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Http(#[source] Arc<hyper::Error>),
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Connect(Arc::new(error))
    }
}

impl From<hyper::Error> for TransportError {
    fn from(error: hyper::Error) -> Self {
        Self::Http(Arc::new(error))
    }
}

/// Connections of equal standing; a request takes the one with the fewest in
/// flight.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connections: Vec<Arc<Connection>>,
    next: AtomicUsize,
    origin: Uri,
    /// The drivers; dropping them closes the connections.
    _drivers: JoinSet<()>,
}

impl Transport {
    /// `count` connections to `endpoint`, driven by the current runtime.
    pub(super) fn new(endpoint: &Endpoint, config: &Config, count: usize) -> Self {
        let mut drivers = JoinSet::new();
        let connections = (0..count).map(|_| {
            let (connection, driver) = Connection::new(endpoint.clone(), config);
            drivers.spawn(driver);
            Arc::new(connection)
        });
        let shared = Shared {
            connections: connections.collect(),
            next: AtomicUsize::new(0),
            origin: endpoint.origin(),
            _drivers: drivers,
        };
        Self { shared: Arc::new(shared) }
    }

    /// What clients of this transport name as their origin.
    pub(super) fn origin(&self) -> Uri {
        self.shared.origin.clone()
    }

    /// The connection that is up and has the fewest calls in flight; the turn
    /// decides between equals.
    fn pick(&self) -> Arc<Connection> {
        let connections = &self.shared.connections;
        let turn = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..connections.len())
            .map(|offset| &connections[turn.wrapping_add(offset) % connections.len()]);
        let picked = in_turn.min_by_key(|connection| connection.load());
        Arc::clone(picked.expect("the configuration has at least one connection"))
    }

    /// Sends `request`, again when the connection broke before any of it left.
    async fn send(self, mut request: Request<Body>) -> Result<Response<Body>, TransportError> {
        for _ in 0..ATTEMPTS {
            let connection = self.pick();
            let in_flight = connection.enter();
            let mut sender = connection.open().await?;
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|body| answer(body, in_flight))),
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(refused.into_error().into()),
                },
            }
        }
        Err(TransportError::Closed)
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Response<Body>, TransportError>>;

    /// Always ready: a request waits for its connection itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// The body, whose errors tell that they came from the connection.
fn answer(body: Incoming, in_flight: InFlight) -> Body {
    Body::new(Answer { body, _in_flight: in_flight }.map_err(TransportError::from))
}

/// An answer being read: its call is in flight until the last byte.
struct Answer {
    body: Incoming,
    _in_flight: InFlight,
}

impl hyper::body::Body for Answer {
    type Data = bytes::Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
