//! Threads with a runtime each, and the distribution of connections over them.

use std::{
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use crate::{
    Scheduling,
    relief::{self, Core},
};

/// Threads with a single-threaded runtime each. Work that starts on a thread stays there: a
/// caller's connection, its requests, and the connection to the engine that sends them. So no
/// request wakes another thread, which would cost as much as reading the request.
#[derive(Debug)]
pub struct Workers {
    seats: Seats,
    /// This channel disconnects when all threads have ended.
    ended: mpsc::Receiver<Infallible>,
    stop: CancellationToken,
}

impl Workers {
    /// Starts `count` threads. `scheduling` is applied if the system permits it.
    ///
    /// # Errors
    /// A thread or its runtime cannot be created.
    pub fn start(count: usize, scheduling: Scheduling) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let (alive, ended) = mpsc::channel();
        let mut runtimes = Vec::new();
        for number in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtimes.push(runtime.handle().clone());
            let core = Core { runtime, alive: alive.clone(), stop: stop.clone() };
            let run = move || relief::drive(core, scheduling);
            thread::Builder::new().name(format!("serving-{number}")).spawn(run)?;
        }
        Ok(Self { seats: Seats::on(runtimes), ended, stop })
    }

    /// The seats for connections on these threads.
    pub fn seats(&self) -> &Seats {
        &self.seats
    }

    /// Stops the threads and waits for them, at most for `patience`. Tasks that still run are
    /// dropped.
    pub fn end(self, patience: Duration) {
        self.stop.cancel();
        let _ = self.ended.recv_timeout(patience);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Runtimes, with the number of connections that each serves. Clones share the counts.
#[derive(Debug, Clone)]
pub struct Seats(Arc<[(Handle, AtomicUsize)]>);

impl Seats {
    /// Makes seats on these runtimes, of which there must be at least one.
    pub fn on(runtimes: impl IntoIterator<Item = Handle>) -> Self {
        Self(runtimes.into_iter().map(|runtime| (runtime, AtomicUsize::new(0))).collect())
    }

    /// The runtimes.
    pub fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter().map(|(runtime, _)| runtime)
    }

    /// Takes a seat on the runtime that serves the fewest connections.
    pub fn take(&self) -> Seat {
        let taken = |&at: &usize| self.0[at].1.load(Relaxed);
        let at = (0..self.0.len()).min_by_key(taken).expect("there is at least one runtime");
        self.0[at].1.fetch_add(1, Relaxed);
        Seat { seats: self.clone(), at }
    }
}

/// A connection's place on a runtime, given back when dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Seats,
    at: usize,
}

impl Seat {
    /// The runtime that serves the connection.
    pub fn runtime(&self) -> &Handle {
        &self.seats.0[self.at].0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.0[self.at].1.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::schedule::tests::policy;

    /// Runs `read` on the seat's thread and returns its result.
    fn run_on<T: Send + 'static>(seat: &Seat, read: fn() -> T) -> T {
        let (sender, receiver) = std::sync::mpsc::channel();
        seat.runtime().spawn(async move { sender.send(read()) });
        receiver.recv().expect("the worker runs")
    }

    fn thread_of(seat: &Seat) -> thread::ThreadId {
        run_on(seat, || thread::current().id())
    }

    #[test]
    fn threads_are_scheduled_as_asked_for() {
        for (scheduling, expected) in
            [(Scheduling::Normal, libc::SCHED_OTHER), (Scheduling::Batch, libc::SCHED_BATCH)]
        {
            let workers = Workers::start(1, scheduling).unwrap();
            assert_eq!(run_on(&workers.seats().take(), policy), expected);
        }
    }

    #[test]
    fn a_connection_goes_to_the_thread_with_the_fewest() {
        let workers = Workers::start(2, Scheduling::Normal).unwrap();
        let mut seats: Vec<_> = (0..4).map(|_| workers.seats().take()).collect();
        let threads: Vec<_> = seats.iter().map(thread_of).collect();
        assert_eq!(threads.iter().collect::<HashSet<_>>().len(), 2);
        assert_eq!(threads.iter().filter(|&&thread| thread == threads[0]).count(), 2);
        drop(seats.remove(1));
        assert_eq!(thread_of(&workers.seats().take()), threads[1]);
        workers.end(Duration::from_secs(5));
    }

    #[test]
    fn threads_end_with_the_workers() {
        let workers = Workers::start(1, Scheduling::Batch).unwrap();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        workers.seats().take().runtime().spawn(async move {
            std::future::pending::<()>().await;
            drop(hold);
        });
        drop(workers);
        assert!(held.recv().is_err(), "a task that still ran was dropped");
    }
}
