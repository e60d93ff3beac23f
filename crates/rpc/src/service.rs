//! Connections as an HTTP service for generated clients.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Frame, Incoming, SizeHint},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Handle,
};
use tonic::body::Body;
use tower::Service;

use crate::{
    Dial, Observer, Settings, TransportError,
    connection::{Driven, InFlight, Lost, Sender, Traffic},
    http2::{LATE_ANSWERS, PING_AFTER, PING_TIMEOUT},
    pool::{ATTEMPTS, Pool},
};

/// The HTTP service of generated tonic clients. Dropping the last clone closes its connections.
#[derive(Debug, Clone)]
pub struct HttpService(Pool<SendRequest<Body>>);

impl HttpService {
    /// Creates connections driven by `runtimes`, which must not be empty; they are opened with the
    /// first request.
    pub fn new(
        dial: &impl Dial,
        settings: &Settings,
        runtimes: &[Handle],
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self(Pool::new(dial, settings, runtimes, observer))
    }

    /// The origin for creating its clients.
    pub fn origin(&self) -> Uri {
        self.0.origin()
    }
}

impl Sender for SendRequest<Body> {
    async fn handshake<S>(
        stream: S,
        settings: &Settings,
        _: Arc<Traffic>,
    ) -> Result<(Self, Driven), TransportError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(settings.http2.stream_window)
            .initial_connection_window_size(settings.http2.connection_window)
            .max_frame_size(settings.http2.frame)
            .max_local_error_reset_streams(LATE_ANSWERS)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(false);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let driven = async {
            let error = connection.await.err().map_or(TransportError::Closed, Into::into);
            Lost::from(error)
        };
        Ok((sender, Box::pin(driven)))
    }

    fn ready(&self) -> Option<Self> {
        (!self.is_closed()).then(|| self.clone())
    }
}

impl Service<Request<Body>> for HttpService {
    type Response = Response<Body>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Response<Body>, TransportError>>;

    /// Always ready: a request waits for its connection itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(send(self.0.clone(), request))
    }
}

/// Sends `request`, and repeats it if the connection broke before any part of it was sent.
async fn send(
    pool: Pool<SendRequest<Body>>,
    mut request: Request<Body>,
) -> Result<Response<Body>, TransportError> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            pool.retried();
        }
        let (mut sender, in_flight) = pool.open().await?;
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

/// Wraps the body so that its errors are [`TransportError`]s, which callers find among the sources
/// of a status.
fn answer(body: Incoming, in_flight: InFlight) -> Body {
    Body::new(Answer { body, _in_flight: in_flight }.map_err(TransportError::from))
}

/// The body of an answer. Its call counts as in flight until the last byte.
struct Answer {
    body: Incoming,
    _in_flight: InFlight,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
