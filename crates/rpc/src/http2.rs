//! Connections of unary calls. A request goes to h2 by its caller, and the answer
//! from h2 to it: through hyper it passes a queue and two more tasks, which is a
//! fifth of what the call costs.

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
    time::{sleep, timeout},
};

use crate::{
    Settings, TransportError,
    connection::{Driven, Lost, Sender, Traffic},
};

/// Pings find a peer that is gone without a word. They are sent only while a
/// call waits, and rarely: a gRPC server takes a third one without data in
/// between for abuse and closes the connection (`too_many_pings`).
pub(crate) const PING_AFTER: Duration = Duration::from_secs(30);
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers to calls that were given up: as many as come. h2 soon forgets such calls,
/// takes for the peer's error what still comes in for them, and would after 1024 of
/// those in a connection's life close it, under all calls that are on it. The bound is
/// for servers, against hostile clients.
pub(crate) const LATE_ANSWERS: Option<usize> = None;

/// Requests a server takes at once before it has said how many it does: what
/// RFC 9113 recommends that it allow at least.
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
    /// Queues a request. On an error nothing of it has left.
    pub(crate) fn send(&mut self, head: Request<()>, body: B) -> Result<ResponseFuture, h2::Error> {
        let (response, mut stream) = self.0.send_request(head, false)?;
        // If the stream has ended meanwhile, the response says why.
        drop(stream.send_data(body, true));
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

/// Whether the connection takes another request. `sender` has sent none, so that
/// it has nothing to wait for.
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
        // The peer is about to close it.
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
            // Its end is not reported: the calls on it learn of it themselves.
            let rest = async { drop(connection.await) };
            Lost { error: TransportError::Closed, rest: Some(Box::pin(rest)) }
        }
    }
}

/// Ends when the peer does not even answer a ping.
async fn silence(mut pings: PingPong, traffic: &Traffic) {
    loop {
        let answers = traffic.answers();
        sleep(PING_AFTER).await;
        if traffic.waiting() == 0 || traffic.answers() != answers {
            continue;
        }
        if !matches!(timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
