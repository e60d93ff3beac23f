//! One HTTP/2 connection that comes back by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::{Notify, watch},
    time::{Instant, sleep, timeout, timeout_at},
};
use tonic::body::Body;

use super::{Config, Endpoint, TransportError};
use crate::metrics;

/// The engine is next door: trying often costs nothing, and is what bridges its
/// restart.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_millis(100);

/// Pings find a peer that is gone without a word. They are sent only while a
/// call waits, and rarely: a gRPC server takes a third one without data in
/// between for abuse and closes the connection (`too_many_pings`).
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Windows hold several megabyte answers, so that none waits for an update.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
const FRAME: u32 = 1 << 20;
const SEND_BUFFER: usize = 4 << 20;

/// A handle to the connection; the task that [`drive`]s it makes and remakes it.
#[derive(Debug)]
pub(super) struct Connection {
    state: watch::Receiver<State>,
    wanted: Arc<Notify>,
    window: Duration,
    in_flight: AtomicUsize,
}

#[derive(Debug, Clone)]
enum State {
    /// Nobody has asked for it yet, or the first attempt is under way.
    Idle,
    /// Open. It may have broken a moment ago.
    Open(SendRequest<Body>),
    /// Lost, or never there; being retried.
    Down { since: Instant, error: TransportError },
}

impl Connection {
    /// The connection and the task that drives it until dropped.
    pub(super) fn new(
        endpoint: Endpoint,
        config: &Config,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (publish, state) = watch::channel(State::Idle);
        let wanted = Arc::new(Notify::new());
        let driver = Driver { endpoint, connect_timeout: config.connect_timeout, publish };
        let task = driver.run(Arc::clone(&wanted));
        let window = config.reconnect_window;
        (Self { state, wanted, window, in_flight: AtomicUsize::new(0) }, task)
    }

    /// Whether it is known to be down, and the calls in flight on it: less is better.
    pub(super) fn load(&self) -> (bool, usize) {
        let down = matches!(&*self.state.borrow(), State::Down { .. });
        (down, self.in_flight.load(Ordering::Relaxed))
    }

    /// The open connection; waits for it, but not when it has been down for
    /// longer than the window.
    pub(super) async fn open(&self) -> Result<SendRequest<Body>, TransportError> {
        let mut state = self.state.clone();
        self.wanted.notify_one();
        loop {
            let (until, error) = match &*state.borrow_and_update() {
                State::Open(sender) if !sender.is_closed() => return Ok(sender.clone()),
                // Broken; the driver is about to say so.
                State::Open(_) | State::Idle => (None, TransportError::Closed),
                State::Down { since, error } => (Some(*since + self.window), error.clone()),
            };
            let changed = match until {
                Some(until) => timeout_at(until, state.changed()).await.map_err(|_| error)?,
                None => state.changed().await,
            };
            changed.map_err(|_| TransportError::Closed)?;
        }
    }

    /// Counts a call for as long as the guard lives.
    pub(super) fn enter(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }
}

/// A call on a connection.
pub(super) struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Driver {
    endpoint: Endpoint,
    connect_timeout: Duration,
    publish: watch::Sender<State>,
}

impl Driver {
    async fn run(self, wanted: Arc<Notify>) {
        wanted.notified().await;
        let mut since = Instant::now();
        loop {
            let (sender, connection) = self.establish(since).await;
            let (open, opened) = (metrics::Open::new(), Instant::now());
            tracing::debug!(engine.endpoint = %self.endpoint, "connected to the engine");
            self.publish.send_replace(State::Open(sender));
            let error = connection.await;
            drop(open);
            tracing::warn!(engine.endpoint = %self.endpoint, error = %error, "lost the engine");
            // A peer that closes what it has just accepted has not been up at
            // all, and is not worth a storm.
            let was_up = opened.elapsed() > LAST_RETRY;
            if was_up {
                since = Instant::now();
            }
            self.publish.send_replace(State::Down { since, error });
            if !was_up {
                sleep(LAST_RETRY).await;
            }
        }
    }

    /// Tries until it works; the engine has been away `since` then.
    async fn establish(
        &self,
        since: Instant,
    ) -> (SendRequest<Body>, impl Future<Output = TransportError> + Send + 'static) {
        let mut delay = FIRST_RETRY;
        loop {
            let attempt = timeout(self.connect_timeout, connect(&self.endpoint)).await;
            let error = match attempt.unwrap_or(Err(TransportError::ConnectTimeout)) {
                Ok(connected) => return connected,
                Err(error) => error,
            };
            metrics::connect_failed();
            tracing::debug!(engine.endpoint = %self.endpoint, error = %error, "cannot connect");
            self.publish.send_replace(State::Down { since, error });
            sleep(delay).await;
            delay = (delay * 2).min(LAST_RETRY);
        }
    }
}

type Driven = futures::future::BoxFuture<'static, TransportError>;

async fn connect(endpoint: &Endpoint) -> Result<(SendRequest<Body>, Driven), TransportError> {
    match endpoint {
        Endpoint::Unix(path) => handshake(UnixStream::connect(path).await?).await,
        Endpoint::Tcp { host, port } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, *port)).await?;
            // Requests are written whole; waiting for more only delays them.
            stream.set_nodelay(true)?;
            handshake(stream).await
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<(SendRequest<Body>, Driven), TransportError> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(false);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let driven = async { connection.await.err().map_or(TransportError::Closed, Into::into) };
    Ok((sender, Box::pin(driven)))
}
