//! Connections for unary calls. The caller itself passes a request to h2 and takes the answer from
//! it: with hyper both pass a queue and two more tasks, which is a fifth of the cost of a call.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Buf;
use futures::FutureExt as _;
use h2::{
    Ping, PingPong,
    client::{Builder, Connection, ResponseFuture, SendRequest},
};
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, timeout},
};

use crate::{
    Settings, TransportError,
    connection::{Driven, Lost, Sender, Traffic},
};

/// The time without an answer after which a ping is sent. Pings detect a peer that vanished without
/// closing the connection, or that hangs. They are sent only while a call waits.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(30);
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The least time between two pings without an answer to a call in between. gRPC servers close the
/// connection of a client (`too_many_pings`) at the third ping that comes less than 5 minutes after
/// the one before, counted since they last sent headers or data: the defaults of gRPC's C core
/// (`grpc.http2.max_ping_strikes`, `grpc.http2.min_ping_interval_without_data_ms`), which Triton,
/// MLServer, KServe and TensorFlow Serving use, and those of grpc-go. With this pause no ping but the
/// first can count, which follows that of [`Settings::confirm`].
const PING_AGAIN: Duration = Duration::from_secs(315);

/// No limit on answers to cancelled calls. h2 soon forgets such calls and counts later frames for
/// them as errors of the peer; after 1024 of those in its lifetime it would close the connection,
/// with all calls on it. The limit protects servers against hostile clients.
pub(crate) const LATE_ANSWERS: Option<usize> = None;

/// The number of requests sent at once before the server has announced its limit: the least limit
/// that RFC 9113 recommends.
const FIRST_STREAMS: usize = 100;

/// Sends requests on one connection.
#[derive(Debug)]
pub(crate) struct Requests<B: Buf>(SendRequest<B>);

impl<B: Buf> Clone for Requests<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Buf> Requests<B> {
    /// Queues a request, with a frame for each piece of the body. On an error no part of it has been
    /// sent.
    pub(crate) fn send(
        &mut self,
        head: Request<()>,
        body: impl Iterator<Item = B>,
    ) -> Result<ResponseFuture, h2::Error> {
        let mut pieces = body.peekable();
        let (response, mut stream) = self.0.send_request(head, pieces.peek().is_none())?;
        while let Some(piece) = pieces.next() {
            // If the stream has ended meanwhile, the response carries the error.
            if stream.send_data(piece, pieces.peek().is_none()).is_err() {
                break;
            }
        }
        Ok(response)
    }
}

impl<B: Buf + Send + Sync + 'static> Sender for Requests<B> {
    async fn handshake<S>(
        stream: S,
        settings: &Settings,
        traffic: Arc<Traffic>,
    ) -> Result<(Self, Driven), TransportError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_max_send_streams(FIRST_STREAMS)
            .initial_window_size(settings.http2.stream_window)
            .initial_connection_window_size(settings.http2.connection_window)
            .max_frame_size(settings.http2.frame)
            .max_local_error_reset_streams(LATE_ANSWERS);
        let (sender, mut connection) = builder.handshake(stream).await?;
        let mut pings = connection.ping_pong().expect("nobody else takes it");
        if settings.confirm {
            confirm(&mut connection, &mut pings).await?;
        }
        let driven = drive(connection, pings, sender.clone(), traffic);
        Ok((Self(sender), Box::pin(driven)))
    }

    fn ready(&self) -> Option<Self> {
        let mut sender = self.0.clone();
        is_open(&mut sender).then_some(Self(sender))
    }
}

/// Waits for the answer to a ping.
async fn confirm<S, B>(
    connection: &mut Connection<S, B>,
    pings: &mut PingPong,
) -> Result<(), TransportError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Buf + 'static,
{
    tokio::select! {
        pong = pings.ping(Ping::opaque()) => Ok(pong.map(drop)?),
        ended = connection => Err(ended.err().map_or(TransportError::Closed, Into::into)),
    }
}

/// Whether the connection accepts another request. `sender` has sent none, so the poll never waits
/// for an earlier one.
fn is_open<B: Buf>(sender: &mut SendRequest<B>) -> bool {
    let ready = sender.poll_ready(&mut Context::from_waker(Waker::noop()));
    matches!(ready, Poll::Ready(Ok(())))
}

async fn drive<S, B>(
    mut connection: Connection<S, B>,
    pings: PingPong,
    mut sender: SendRequest<B>,
    traffic: Arc<Traffic>,
) -> Lost
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: Buf + Send + 'static,
{
    let ended = poll_fn(|context| match connection.poll_unpin(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        // The peer is about to close the connection.
        Poll::Pending if !is_open(&mut sender) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    let ended = tokio::select! {
        // Input that has arrived is read before the peer is judged to be silent.
        biased;
        ended = ended => ended,
        () = silence(pings, &traffic) => return TransportError::Silent.into(),
    };
    match ended {
        Some(Ok(())) => TransportError::Closed.into(),
        Some(Err(error)) => TransportError::from(error).into(),
        None => {
            // The result is not reported here: each call on the connection gets its own error.
            let rest = async { drop(connection.await) };
            Lost { error: TransportError::Closed, rest: Some(Box::pin(rest)) }
        }
    }
}

/// Ends when the peer does not answer a ping.
async fn silence(mut pings: PingPong, traffic: &Traffic) {
    // The time of the last ping, if no call was answered since.
    let (mut answers, mut pinged) = (traffic.answers(), None::<Instant>);
    loop {
        sleep(PING_AFTER).await;
        if traffic.answers() != answers {
            (answers, pinged) = (traffic.answers(), None);
            continue;
        }
        if traffic.waiting() == 0 || pinged.is_some_and(|at| at.elapsed() < PING_AGAIN) {
            continue;
        }
        if !matches!(timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
        pinged = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests;
