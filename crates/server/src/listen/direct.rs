//! HTTP/2 on h2 itself, for the listener whose requests are messages.
//!
//! hyper does not say on which stream a request arrives, which [`Streams`] must know, and passes each
//! request and answer through a further layer.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    BoxError,
    body::Bytes,
    http::{Request, header::CONTENT_LENGTH},
};
use bytes::{BufMut as _, BytesMut};
use futures::{FutureExt as _, future::BoxFuture};
use h2::{
    Ping, PingPong, Reason, RecvStream,
    server::{Builder, Connection, Handshake, SendResponse},
};
use outrigger_net::Scatter;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    time::{sleep, timeout},
};

use super::{
    Arriving, FRAME, GIVEN_UP, HEADERS, PING_EVERY, PING_TIMEOUT, STREAM_WINDOW, STREAMS,
    frames::{PREFACE, Unpaid},
    intake::Intake,
    link::Link,
    streams::Streams,
    unread::Unread,
};
use crate::sending::Unsent;

/// The window of the connection for h2. All windows are kept below it, so this one is never used up.
const UNBOUNDED: u32 = (1 << 31) - 1;

/// Reads the first bytes of a connection into `first`. Returns true if they are HTTP/2's.
pub(super) async fn is_http2(
    stream: &mut (impl AsyncRead + Unpin),
    first: &mut BytesMut,
) -> std::io::Result<bool> {
    while first.len() < PREFACE.len() && PREFACE.starts_with(first) {
        let missing = PREFACE.len() - first.len();
        if stream.read_buf(&mut (&mut *first).limit(missing)).await? == 0 {
            break;
        }
    }
    Ok(&first[..] == PREFACE)
}

/// An HTTP/2 connection; its output is how it ended. `H` handles each request.
pub(super) struct Direct<S, H> {
    state: State<S>,
    streams: Streams,
    link: Arc<Link>,
    silence: BoxFuture<'static, ()>,
    is_leaving: bool,
    is_message: fn(&str) -> bool,
    handle: H,
}

enum State<S> {
    Greeting(Handshake<Intake<S>, Bytes>),
    Open(Connection<Intake<S>, Bytes>),
}

impl<S: Scatter + AsyncWrite + Unpin, H> Direct<S, H> {
    /// Serves `stream`, of which the preface has been read into `first`. The bodies of the paths
    /// for which `is_message` returns true are messages. Its unread bytes are in the pool `unread`;
    /// its answers are `unsent`. `handler` makes the handler of requests, which pay for the frames in
    /// vain.
    pub(super) fn new(
        (stream, first): (S, BytesMut),
        is_message: fn(&str) -> bool,
        unread: &Unread,
        unsent: &Arc<Unsent>,
        handler: impl FnOnce(Unpaid) -> H,
    ) -> Self {
        let link = Arc::new(Link::new(unread.clone()));
        let streams = Streams::new(first, Arc::clone(&link));
        let intake = Intake::new(stream, streams.clone(), Arc::clone(&link), Arc::clone(unsent));
        let handle = handler(intake.unpaid());
        let state = State::Greeting(protocol().handshake(intake));
        let silence = std::future::pending().boxed();
        Self { state, streams, link, silence, is_leaving: false, is_message, handle }
    }

    /// Lets the peer send no more requests.
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    fn poll_greeted(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let State::Greeting(handshake) = &mut self.state else { return Poll::Ready(Ok(())) };
        let mut connection = ready!(handshake.poll_unpin(context))?;
        if let Some(pings) = connection.ping_pong() {
            self.silence = silence(pings, Arc::clone(&self.link)).boxed();
        }
        if self.is_leaving {
            connection.graceful_shutdown();
        }
        self.state = State::Open(connection);
        Poll::Ready(Ok(()))
    }
}

impl<S, H> Future for Direct<S, H>
where
    S: Scatter + AsyncWrite + Unpin,
    H: FnMut(Request<Arriving>, SendResponse<Bytes>) + Unpin,
{
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.poll_greeted(context))?;
        let State::Open(connection) = &mut this.state else { return Poll::Pending };
        if this.silence.poll_unpin(context).is_ready() {
            connection.abrupt_shutdown(Reason::NO_ERROR);
            this.silence = std::future::pending().boxed();
        }
        while let Poll::Ready(accepted) = connection.poll_accept(context) {
            match accepted.transpose()? {
                Some((request, respond)) => {
                    let stream = respond.stream_id().as_u32();
                    let taken = this.streams.accept(stream, is_message(&request, this.is_message));
                    let request = request.map(|body| Arriving::on_stream(body, taken));
                    (this.handle)(request, respond);
                }
                None => return Poll::Ready(Ok(())),
            }
        }
        if this.streams.settle() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// True if the body of a request is taken out as a message. A body whose length is in the headers
/// stays with h2, which compares the two.
fn is_message(request: &Request<RecvStream>, by_path: fn(&str) -> bool) -> bool {
    by_path(request.uri().path()) && !request.headers().contains_key(CONTENT_LENGTH)
}

fn protocol() -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(UNBOUNDED)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(GIVEN_UP);
    builder
}

/// Ends when a peer that sends nothing does not answer a ping either. While the socket is not read,
/// nothing is known of the peer.
async fn silence(mut pings: PingPong, link: Arc<Link>) {
    loop {
        let reads = link.reads();
        sleep(PING_EVERY).await;
        if link.reads() != reads || link.is_held_up() {
            continue;
        }
        let mut pong = pin!(pings.ping(Ping::opaque()));
        loop {
            match timeout(PING_TIMEOUT, pong.as_mut()).await {
                Ok(Ok(_)) => break,
                Err(_) if link.reads() != reads || link.is_held_up() => {}
                _ => return,
            }
        }
    }
}
