//! Connections as the HTTP service that generated clients call: control calls.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Frame, Incoming, SizeHint},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tower::Service;

use super::{
    TransportError,
    connection::{Driven, InFlight, Lost, Sender, Traffic},
    http2::{CONNECTION_WINDOW, FRAME, LATE_ANSWERS, PING_AFTER, PING_TIMEOUT, STREAM_WINDOW},
    transport::{ATTEMPTS, Transport},
};
use crate::metrics;

pub(super) type HttpService = Transport<SendRequest<Body>>;

impl Sender for SendRequest<Body> {
    async fn handshake<S>(stream: S, _: Arc<Traffic>) -> Result<(Self, Driven), TransportError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
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
        Box::pin(send(self.clone(), request))
    }
}

/// Sends `request`, again when the connection broke before any of it left.
async fn send(
    transport: HttpService,
    mut request: Request<Body>,
) -> Result<Response<Body>, TransportError> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            metrics::retried();
        }
        let (mut sender, in_flight) = transport.open().await?;
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
