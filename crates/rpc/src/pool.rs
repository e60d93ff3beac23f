//! A pool of connections to one server.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use http::Uri;
use tokio::{
    runtime::{self, Handle},
    task::JoinSet,
};

use crate::{
    Dial, Observer, Settings, TransportError,
    connection::{Connection, InFlight, Sender},
};

/// The number of broken connections that a request tries before it fails.
pub(crate) const ATTEMPTS: usize = 3;

/// A pool of equal connections. Dropping the last clone closes them.
#[derive(Debug)]
pub(crate) struct Pool<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    connections: Vec<Member<S>>,
    next: AtomicUsize,
    origin: Uri,
    observer: Arc<dyn Observer>,
    /// Dropping them closes the connections.
    _drivers: JoinSet<()>,
}

#[derive(Debug)]
struct Member<S> {
    connection: Connection<S>,
    /// The runtime that drives it.
    home: runtime::Id,
}

impl<S> Clone for Pool<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Sender> Pool<S> {
    /// Creates the configured number of connections, at least one for each of `runtimes`, which
    /// drive them in turn.
    pub(crate) fn new(
        dial: &impl Dial,
        settings: &Settings,
        runtimes: &[Handle],
        observer: Arc<dyn Observer>,
    ) -> Self {
        let mut drivers = JoinSet::new();
        let runtimes = runtimes.iter().cycle().take(settings.connections.max(runtimes.len()));
        let connections = runtimes.map(|runtime| {
            let (connection, driver) =
                Connection::new(dial.clone(), settings, Arc::clone(&observer));
            drivers.spawn_on(driver, runtime);
            Member { connection, home: runtime.id() }
        });
        let shared = Shared {
            connections: connections.collect(),
            next: AtomicUsize::new(0),
            origin: dial.origin(),
            observer,
            _drivers: drivers,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Scheme and authority of the requests' URLs.
    pub(crate) fn origin(&self) -> Uri {
        self.shared.origin.clone()
    }

    /// Waits until the first attempt of each connection has ended. Returns an error if one failed.
    pub(crate) async fn connected(&self) -> Result<(), TransportError> {
        for member in &self.shared.connections {
            member.connection.attempted().await?;
        }
        Ok(())
    }

    /// Returns an open connection with a call counted on it.
    pub(crate) async fn open(&self) -> Result<(S, InFlight), TransportError> {
        let connection = self.pick();
        let in_flight = connection.enter();
        Ok((connection.open().await?, in_flight))
    }

    /// Reports a repeated call.
    pub(crate) fn retried(&self) {
        self.shared.observer.retried();
    }

    /// The best connection for a call: one that is up; then one driven by the caller's own runtime,
    /// so that no other thread has to wake up for it; then the one with the fewest calls in flight.
    /// Equal connections take turns.
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
