//! An HTTP/2 connection that reconnects by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{Dial, Observer, Settings, TransportError, observer::Open};

/// Sends requests on one open connection. Cheap to clone.
pub(crate) trait Sender: Clone + Send + Sync + 'static {
    /// Starts HTTP/2 on `stream`.
    fn handshake<S>(
        stream: S,
        settings: &Settings,
        traffic: Arc<Traffic>,
    ) -> impl Future<Output = Result<(Self, Driven), TransportError>> + Send
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// A sender for the next request; `None` if the connection accepts no more.
    fn ready(&self) -> Option<Self>;
}

/// The task of a connection, until it accepts no more requests.
pub(crate) type Driven = BoxFuture<'static, Lost>;

/// A connection that accepts no more requests.
pub(crate) struct Lost {
    /// The cause.
    pub(crate) error: TransportError,
    /// The task that receives the remaining answers, if there may be any.
    pub(crate) rest: Option<BoxFuture<'static, ()>>,
}

impl From<TransportError> for Lost {
    fn from(error: TransportError) -> Self {
        Self { error, rest: None }
    }
}

/// Counts of the calls of a connection, across reconnects.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    waiting: AtomicUsize,
    answers: AtomicUsize,
}

impl Traffic {
    /// The number of calls without an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Counts a call for as long as the guard lives.
    pub(crate) fn enter(self: &Arc<Self>) -> InFlight {
        self.waiting.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    /// The number of answers so far. It wraps, so only a change of it is meaningful.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Relaxed)
    }
}

/// A handle to the connection; the task that drives it connects and reconnects.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    state: watch::Receiver<State<S>>,
    wanted: Arc<Notify>,
    window: Duration,
    traffic: Arc<Traffic>,
}

#[derive(Debug, Clone)]
enum State<S> {
    /// Not used yet, or during the first attempt.
    Idle,
    /// Open, as far as known.
    Open(S),
    /// Lost, or never opened; being retried.
    Down { since: Instant, error: TransportError },
}

impl<S: Sender> Connection<S> {
    /// Creates the connection, and the task that drives it until dropped.
    pub(crate) fn new<D: Dial>(
        dial: D,
        settings: &Settings,
        observer: Arc<dyn Observer>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (publish, state) = watch::channel(State::Idle);
        let (wanted, traffic) = (Arc::new(Notify::new()), Arc::new(Traffic::default()));
        let (settings, window) = (*settings, settings.reconnect_window);
        let driver = Driver { dial, settings, traffic: Arc::clone(&traffic), publish, observer };
        let task = driver.run(Arc::clone(&wanted));
        (Self { state, wanted, window, traffic }, task)
    }

    /// Whether the connection is known to be down.
    pub(crate) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Down { .. })
    }

    /// The number of calls in flight on it.
    pub(crate) fn waiting(&self) -> usize {
        self.traffic.waiting()
    }

    /// Returns the open connection. Waits for it, unless it has been down for longer than the
    /// reconnect window.
    pub(crate) async fn open(&self) -> Result<S, TransportError> {
        match self.open_now() {
            Some(sender) => Ok(sender),
            None => self.opened(self.window).await,
        }
    }

    fn open_now(&self) -> Option<S> {
        match &*self.state.borrow() {
            State::Open(sender) => sender.ready(),
            State::Idle | State::Down { .. } => None,
        }
    }

    /// Waits until the first attempt has ended.
    pub(crate) async fn attempted(&self) -> Result<(), TransportError> {
        self.opened(Duration::ZERO).await.map(drop)
    }

    async fn opened(&self, window: Duration) -> Result<S, TransportError> {
        let mut state = self.state.clone();
        self.wanted.notify_one();
        loop {
            let (until, error) = match &*state.borrow_and_update() {
                State::Open(sender) => match sender.ready() {
                    Some(sender) => return Ok(sender),
                    // The connection is broken, and the driver is about to report it.
                    None => (None, TransportError::Closed),
                },
                State::Idle => (None, TransportError::Closed),
                State::Down { since, error } => (Some(*since + window), error.clone()),
            };
            let changed = match until {
                Some(until) => timeout_at(until, state.changed()).await.map_err(|_| error)?,
                None => state.changed().await,
            };
            changed.map_err(|_| TransportError::Closed)?;
        }
    }

    /// Counts a call for as long as the guard lives.
    pub(crate) fn enter(&self) -> InFlight {
        self.traffic.enter()
    }
}

/// A call on a connection.
pub(crate) struct InFlight(Arc<Traffic>);

impl InFlight {
    /// Records that the peer has answered.
    pub(crate) fn answered(&self) {
        self.0.answers.fetch_add(1, Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

struct Driver<D, S> {
    dial: D,
    settings: Settings,
    traffic: Arc<Traffic>,
    publish: watch::Sender<State<S>>,
    observer: Arc<dyn Observer>,
}

impl<D: Dial, S: Sender> Driver<D, S> {
    async fn run(self, wanted: Arc<Notify>) {
        wanted.notified().await;
        let mut since = Instant::now();
        let mut ending = JoinSet::new();
        loop {
            let (sender, driven) = self.establish(since).await;
            let (open, opened) = (Open::new(&*self.observer), Instant::now());
            self.publish.send_replace(State::Open(sender));
            let Lost { error, rest } = driven.await;
            drop(open);
            self.observer.lost(&error);
            // A peer that closes a connection just after accepting it still counts as down, and
            // the next attempt follows after the longest pause.
            let was_up = opened.elapsed() > self.settings.last_retry;
            if was_up {
                since = Instant::now();
            }
            self.publish.send_replace(State::Down { since, error });
            // The server may still answer the requests it has begun with.
            while ending.try_join_next().is_some() {}
            ending.extend(rest);
            if !was_up {
                sleep(self.settings.last_retry).await;
            }
        }
    }

    /// Tries until a connection is open; the server has been away since `since`.
    async fn establish(&self, since: Instant) -> (S, Driven) {
        let mut delay = self.settings.first_retry;
        loop {
            let attempt = timeout(self.settings.connect_timeout, self.connect()).await;
            let error = match attempt.unwrap_or(Err(TransportError::ConnectTimeout)) {
                Ok(connected) => return connected,
                Err(error) => error,
            };
            self.observer.failed(&error);
            self.publish.send_replace(State::Down { since, error });
            sleep(delay).await;
            delay = (delay * 2).min(self.settings.last_retry);
        }
    }

    async fn connect(&self) -> Result<(S, Driven), TransportError> {
        let stream = self.dial.dial().await?;
        S::handshake(stream, &self.settings, Arc::clone(&self.traffic)).await
    }
}
