//! One HTTP/2 connection that comes back by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use outrigger_net::ReadAhead;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{Config, Endpoint, TransportError};
use crate::metrics;

/// The engine is next door: trying often costs nothing, and is what bridges its
/// restart.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_millis(100);

/// What sends requests on one open connection. Cheap to clone.
pub(super) trait Sender: Clone + Send + Sync + 'static {
    /// Begins to speak HTTP/2 on `stream`.
    fn handshake<S>(
        stream: S,
        traffic: Arc<Traffic>,
    ) -> impl Future<Output = Result<(Self, Driven), TransportError>> + Send
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// A sender for the next request; `None` once the connection takes no more.
    fn ready(&self) -> Option<Self>;
}

/// The work of a connection, until it takes no more requests.
pub(super) type Driven = BoxFuture<'static, Lost>;

/// A connection that takes no more requests.
pub(super) struct Lost {
    /// Why.
    pub(super) error: TransportError,
    /// Its work until the last answer, if there may still be some.
    pub(super) rest: Option<BoxFuture<'static, ()>>,
}

impl From<TransportError> for Lost {
    fn from(error: TransportError) -> Self {
        Self { error, rest: None }
    }
}

/// What goes over a connection, whatever it is made of at the moment.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    waiting: AtomicUsize,
    answers: AtomicUsize,
}

impl Traffic {
    /// Calls that have not been answered yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Answers so far; only that it changes means something.
    pub(super) fn answers(&self) -> usize {
        self.answers.load(Relaxed)
    }
}

/// A handle to the connection; the task that drives it makes and remakes it.
#[derive(Debug)]
pub(super) struct Connection<S> {
    state: watch::Receiver<State<S>>,
    wanted: Arc<Notify>,
    window: Duration,
    traffic: Arc<Traffic>,
}

#[derive(Debug, Clone)]
enum State<S> {
    /// Nobody has asked for it yet, or the first attempt is under way.
    Idle,
    /// Open. It may have broken a moment ago.
    Open(S),
    /// Lost, or never there; being retried.
    Down { since: Instant, error: TransportError },
}

impl<S: Sender> Connection<S> {
    /// The connection and the task that drives it until dropped.
    pub(super) fn new(
        endpoint: Endpoint,
        config: &Config,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (publish, state) = watch::channel(State::Idle);
        let (wanted, traffic) = (Arc::new(Notify::new()), Arc::new(Traffic::default()));
        let connect_timeout = config.connect_timeout;
        let driver = Driver { endpoint, connect_timeout, traffic: Arc::clone(&traffic), publish };
        let task = driver.run(Arc::clone(&wanted));
        (Self { state, wanted, window: config.reconnect_window, traffic }, task)
    }

    /// Whether it is known to be down.
    pub(super) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Down { .. })
    }

    /// The calls in flight on it.
    pub(super) fn waiting(&self) -> usize {
        self.traffic.waiting()
    }

    /// The open connection; waits for it, but not when it has been down for
    /// longer than the window.
    pub(super) async fn open(&self) -> Result<S, TransportError> {
        match self.open_now() {
            Some(sender) => Ok(sender),
            None => self.opened().await,
        }
    }

    fn open_now(&self) -> Option<S> {
        match &*self.state.borrow() {
            State::Open(sender) => sender.ready(),
            State::Idle | State::Down { .. } => None,
        }
    }

    async fn opened(&self) -> Result<S, TransportError> {
        let mut state = self.state.clone();
        self.wanted.notify_one();
        loop {
            let (until, error) = match &*state.borrow_and_update() {
                State::Open(sender) => match sender.ready() {
                    Some(sender) => return Ok(sender),
                    // Broken; the driver is about to say so.
                    None => (None, TransportError::Closed),
                },
                State::Idle => (None, TransportError::Closed),
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
    pub(super) fn enter(&self) -> InFlight {
        self.traffic.waiting.fetch_add(1, Relaxed);
        InFlight(Arc::clone(&self.traffic))
    }
}

/// A call on a connection.
pub(super) struct InFlight(Arc<Traffic>);

impl InFlight {
    /// Notes that the peer has answered.
    pub(super) fn answered(&self) {
        self.0.answers.fetch_add(1, Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

struct Driver<S> {
    endpoint: Endpoint,
    connect_timeout: Duration,
    traffic: Arc<Traffic>,
    publish: watch::Sender<State<S>>,
}

impl<S: Sender> Driver<S> {
    async fn run(self, wanted: Arc<Notify>) {
        wanted.notified().await;
        let mut since = Instant::now();
        let mut ending = JoinSet::new();
        loop {
            let (sender, driven) = self.establish(since).await;
            let (open, opened) = (metrics::Open::new(), Instant::now());
            tracing::debug!(engine.endpoint = %self.endpoint, "connected to the engine");
            self.publish.send_replace(State::Open(sender));
            let Lost { error, rest } = driven.await;
            drop(open);
            tracing::warn!(engine.endpoint = %self.endpoint, error = %error, "lost the engine");
            // A peer that closes what it has just accepted has not been up at
            // all, and is not worth a storm.
            let was_up = opened.elapsed() > LAST_RETRY;
            if was_up {
                since = Instant::now();
            }
            self.publish.send_replace(State::Down { since, error });
            // What the engine has begun it may finish.
            while ending.try_join_next().is_some() {}
            ending.extend(rest);
            if !was_up {
                sleep(LAST_RETRY).await;
            }
        }
    }

    /// Tries until it works; the engine has been away `since` then.
    async fn establish(&self, since: Instant) -> (S, Driven) {
        let mut delay = FIRST_RETRY;
        loop {
            let attempt = timeout(self.connect_timeout, self.connect()).await;
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

    async fn connect(&self) -> Result<(S, Driven), TransportError> {
        let traffic = Arc::clone(&self.traffic);
        match &self.endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                S::handshake(ReadAhead::new(stream), traffic).await
            }
            Endpoint::Tcp { host, port } => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let stream = TcpStream::connect((host, *port)).await?;
                // Requests are written whole; waiting for more only delays them.
                stream.set_nodelay(true)?;
                S::handshake(ReadAhead::new(stream), traffic).await
            }
        }
    }
}
