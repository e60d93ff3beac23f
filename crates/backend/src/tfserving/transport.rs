//! Several connections as one.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use http::Uri;
use tokio::{
    runtime::{self, Handle},
    task::JoinSet,
};

use super::{
    Config, Endpoint,
    connection::{Connection, InFlight, Sender},
};

/// Connections a request may find broken before it gives up.
pub(super) const ATTEMPTS: usize = 3;

/// The engine could not be reached, or the connection broke.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(#[source] Arc<io::Error>),
    /// Nobody answered the attempt to connect.
    #[error("connecting took too long")]
    ConnectTimeout,
    /// The engine closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The engine's host, or the engine as a whole, hangs.
    #[error("nobody answers on the connection")]
    Silent,
    /// The connection of control calls failed.
    #[error("the connection failed: {0}")]
    Http(#[source] Arc<hyper::Error>),
    /// A connection of predictions, or one prediction on it, failed.
    #[error("the connection failed: {0}")]
    Http2(#[source] Arc<h2::Error>),
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Connect(Arc::new(error))
    }
}

impl From<hyper::Error> for TransportError {
    fn from(error: hyper::Error) -> Self {
        Self::Http(Arc::new(error))
    }
}

impl From<h2::Error> for TransportError {
    fn from(error: h2::Error) -> Self {
        Self::Http2(Arc::new(error))
    }
}

/// Connections of equal standing. Dropping the last clone closes them.
#[derive(Debug)]
pub(super) struct Transport<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    connections: Vec<Member<S>>,
    next: AtomicUsize,
    origin: Uri,
    /// Dropping them closes the connections.
    _drivers: JoinSet<()>,
}

#[derive(Debug)]
struct Member<S> {
    connection: Connection<S>,
    /// The runtime that drives it.
    home: runtime::Id,
}

impl<S> Clone for Transport<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Sender> Transport<S> {
    /// `count` connections to `endpoint`, but one at least for each of
    /// `runtimes`, which drive them by turns.
    pub(super) fn new(
        endpoint: &Endpoint,
        config: &Config,
        count: usize,
        runtimes: &[Handle],
    ) -> Self {
        let mut drivers = JoinSet::new();
        let runtimes = runtimes.iter().cycle().take(count.max(runtimes.len()));
        let connections = runtimes.map(|runtime| {
            let (connection, driver) = Connection::new(endpoint.clone(), config);
            drivers.spawn_on(driver, runtime);
            Member { connection, home: runtime.id() }
        });
        let shared = Shared {
            connections: connections.collect(),
            next: AtomicUsize::new(0),
            origin: endpoint.origin(),
            _drivers: drivers,
        };
        Self { shared: Arc::new(shared) }
    }

    /// What clients of this transport name as their origin.
    pub(super) fn origin(&self) -> Uri {
        self.shared.origin.clone()
    }

    /// An open connection, with a call counted on it.
    pub(super) async fn open(&self) -> Result<(S, InFlight), TransportError> {
        let connection = self.pick();
        let in_flight = connection.enter();
        Ok((connection.open().await?, in_flight))
    }

    /// The best connection for a call: up; driven by the caller's own runtime, so
    /// that no other thread has to wake up for it; with the fewest calls in
    /// flight. The turn decides between equals.
    fn pick(&self) -> &Connection<S> {
        let (members, here) = (&self.shared.connections, Handle::current().id());
        let (before, after) = members.split_at(self.turn());
        let in_turn = after.iter().chain(before);
        let picked = in_turn.min_by_key(|Member { connection, home }| {
            (connection.is_down(), *home != here, connection.waiting())
        });
        &picked.expect("there is at least one connection").connection
    }

    fn turn(&self) -> usize {
        self.shared.next.fetch_add(1, Relaxed) % self.shared.connections.len()
    }
}
