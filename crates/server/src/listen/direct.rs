//! HTTP/2 on h2 itself, for the listeners whose requests wait at their headers.
//!
//! hyper keeps the windows of a connection as they are at its beginning, and does not say how much of
//! a body has arrived. Here they follow what is unread.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{BoxError, body::Bytes, http::Request};
use bytes::{BufMut as _, BytesMut};
use futures::{FutureExt as _, future::BoxFuture};
use h2::{
    Ping, PingPong, Reason, RecvStream,
    server::{Builder, Connection, Handshake, SendResponse},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    time::{sleep, timeout},
};

use super::{
    Arriving, FRAME, GIVEN_UP, HEADERS, PING_EVERY, PING_TIMEOUT, STREAM_WINDOW, STREAMS,
    ahead::Ahead,
    bodies::Bodies,
    frames::{Frames, MOST, PREFACE, Seen, Unpaid},
    windows::Windows,
};

/// The time in which frames of a stream that was reset are no errors of the peer: it may have sent
/// them before. h2 ends a connection with too many errors.
const RESET_FOR: Duration = Duration::from_secs(30);
/// The bytes that small frames of unread bodies may lack to 256 each. As many such frames may be unread
/// as a peer may send that ask for nothing.
const SMALL_FRAMES: usize = 256 * MOST as usize;

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
    bodies: Arc<Bodies>,
    windows: Windows,
    seen: Arc<Seen>,
    /// The SETTINGS that were sent.
    settings: usize,
    silence: BoxFuture<'static, ()>,
    is_leaving: bool,
    handle: H,
}

type Socket<S> = Frames<Ahead<S>>;

enum State<S> {
    Greeting(Handshake<Socket<S>, Bytes>),
    Open(Connection<Socket<S>, Bytes>),
}

impl<S, H> Direct<S, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Serves `stream` after its preface `first`.
    pub(super) fn new(
        stream: S,
        first: BytesMut,
        bodies: Bodies,
        handler: impl FnOnce(Unpaid) -> H,
    ) -> Self {
        let windows = Windows::new(bodies.share());
        let bodies = Arc::new(bodies);
        let socket = Frames::new(Ahead::new(stream, first, Arc::clone(&bodies)));
        let seen = socket.seen();
        let handle = handler(socket.unpaid());
        let state = State::Greeting(protocol(&windows).handshake(socket));
        let silence = std::future::pending().boxed();
        Self { state, bodies, windows, seen, settings: 1, silence, is_leaving: false, handle }
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
            let silence = silence(pings, Arc::clone(&self.seen), Arc::clone(&self.bodies));
            self.silence = silence.boxed();
        }
        if self.is_leaving {
            connection.graceful_shutdown();
        }
        self.state = State::Open(connection);
        Poll::Ready(Ok(()))
    }

    /// Adapts the windows to what is unread. Returns true if the connection must be polled again.
    fn adapt(&mut self) -> bool {
        let State::Open(connection) = &mut self.state else { return false };
        let demand = self.bodies.count();
        let mut is_settled = self.seen.acknowledged() >= self.settings;
        let stream = self.windows.streams(demand, is_settled);
        if let Some(window) = stream {
            // h2 takes these, as those before were acknowledged.
            let is_sent = connection.set_initial_window_size(window).is_ok();
            self.settings += usize::from(is_sent);
            is_settled = false;
        }
        let whole = self.windows.connections(demand, is_settled);
        if let Some(window) = whole {
            connection.set_target_window_size(window);
        }
        demand.is_partial || stream.is_some() || whole.is_some()
    }
}

impl<S, H> Future for Direct<S, H>
where
    S: AsyncRead + AsyncWrite + Unpin,
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
        // Before the bodies are counted, so that no change is missed.
        this.bodies.register(context);
        while let Poll::Ready(accepted) = connection.poll_accept(context) {
            match accepted.transpose()? {
                Some((request, respond)) => {
                    let request = request.map(|body| arriving(body, &this.bodies));
                    (this.handle)(request, respond);
                }
                None => return Poll::Ready(Ok(())),
            }
        }
        if this.adapt() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

fn arriving(mut body: RecvStream, bodies: &Arc<Bodies>) -> Arriving {
    let entered = (!body.is_end_stream()).then(|| bodies.enter(body.flow_control().clone()));
    Arriving::on_stream(body, entered)
}

fn protocol(windows: &Windows) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(windows.connection())
        .max_frame_size(FRAME)
        .max_header_list_size(HEADERS)
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(GIVEN_UP)
        .max_concurrent_reset_streams(STREAMS as usize)
        .reset_stream_duration(RESET_FOR)
        .data_frame_budget(SMALL_FRAMES);
    builder
}

/// Ends when a peer that sends nothing does not answer a ping either. While the socket is not read,
/// nothing is known of the peer.
async fn silence(mut pings: PingPong, seen: Arc<Seen>, bodies: Arc<Bodies>) {
    loop {
        let reads = seen.reads();
        sleep(PING_EVERY).await;
        if seen.reads() != reads || bodies.is_held_up() {
            continue;
        }
        let mut pong = pin!(pings.ping(Ping::opaque()));
        loop {
            match timeout(PING_TIMEOUT, pong.as_mut()).await {
                Ok(Ok(_)) => break,
                Err(_) if seen.reads() != reads || bodies.is_held_up() => {}
                _ => return,
            }
        }
    }
}
