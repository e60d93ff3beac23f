//! Connections for predictions. A request goes to h2 by its caller, and the answer
//! from h2 to it: through hyper it passes a queue and two more tasks, which is a
//! fifth of what the call costs.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

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

use super::{
    TransportError,
    connection::{Driven, Lost, Sender, Traffic},
};
use crate::wire::Segments;

/// Windows hold several megabyte answers, so that none waits for an update.
pub(super) const STREAM_WINDOW: u32 = 8 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 32 << 20;
pub(super) const FRAME: u32 = 1 << 20;

/// Pings find a peer that is gone without a word. They are sent only while a
/// call waits, and rarely: a gRPC server takes a third one without data in
/// between for abuse and closes the connection (`too_many_pings`).
pub(super) const PING_AFTER: Duration = Duration::from_secs(30);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers to calls that were given up: as many as come. h2 soon forgets such calls,
/// takes for the peer's error what still comes in for them, and would after 1024 of
/// those in a connection's life close it, under all calls that are on it. The bound is
/// for servers, against hostile clients.
pub(super) const LATE_ANSWERS: Option<usize> = None;

/// Requests a server takes at once before it has said how many it does: what
/// RFC 9113 recommends that it allow at least.
const FIRST_STREAMS: usize = 100;

/// Sends predictions on one connection.
#[derive(Debug, Clone)]
pub(super) struct Predictions(SendRequest<Segments>);

impl Predictions {
    /// Queues a request. On an error nothing of it has left.
    pub(super) fn send(
        &mut self,
        head: Request<()>,
        body: Segments,
    ) -> Result<ResponseFuture, h2::Error> {
        let (response, mut stream) = self.0.send_request(head, false)?;
        // If the stream has ended meanwhile, the response says why.
        drop(stream.send_data(body, true));
        Ok(response)
    }
}

impl Sender for Predictions {
    async fn handshake<S>(
        stream: S,
        traffic: Arc<Traffic>,
    ) -> Result<(Self, Driven), TransportError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_max_send_streams(FIRST_STREAMS)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
            .max_local_error_reset_streams(LATE_ANSWERS);
        let (sender, connection) = builder.handshake(stream).await?;
        Ok((Self(sender.clone()), Box::pin(drive(connection, sender, traffic))))
    }

    fn ready(&self) -> Option<Self> {
        let mut sender = self.0.clone();
        is_open(&mut sender).then_some(Self(sender))
    }
}

/// Whether the connection takes another request. `sender` has sent none, so that
/// it has nothing to wait for.
fn is_open(sender: &mut SendRequest<Segments>) -> bool {
    let ready = sender.poll_ready(&mut Context::from_waker(Waker::noop()));
    matches!(ready, Poll::Ready(Ok(())))
}

async fn drive<S>(
    mut connection: Connection<S, Segments>,
    mut sender: SendRequest<Segments>,
    traffic: Arc<Traffic>,
) -> Lost
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let pings = connection.ping_pong().expect("nobody else takes it");
    let ended = std::future::poll_fn(|context| match connection.poll_unpin(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        // The peer is about to close it.
        Poll::Pending if !is_open(&mut sender) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    let ended = tokio::select! {
        // What has come in is read before it is judged to be nothing.
        biased;
        ended = ended => ended,
        () = silence(pings, &traffic) => return TransportError::Silent.into(),
    };
    match ended {
        Some(Ok(())) => TransportError::Closed.into(),
        Some(Err(error)) => TransportError::from(error).into(),
        None => {
            // Its end is not told: the calls on it learn of it themselves.
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
