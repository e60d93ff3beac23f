//! The progress of a worker, as it shows and stores it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{Health, dead::DeadRows};

/// The progress of one worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The name of the worker, which is random.
    pub worker: String,
    /// The time of this report (RFC 3339).
    pub time: String,
    /// The rows of the job.
    pub rows: u64,
    /// The rows that were committed when the worker began.
    pub before: u64,
    /// The rows of the chunks that other workers have committed since then, as far as this worker
    /// has read their commits.
    pub elsewhere: u64,
    /// The rows of the chunks that this worker has finished after another one.
    pub lost: u64,
    /// The rows of chunks that this worker goes on with, which were committed in parts before.
    pub resumed: u64,
    /// The rows that this worker has read.
    pub read: u64,
    /// The rows that this worker has scored.
    pub scored: u64,
    /// The rows that this worker has found dead.
    pub dead: u64,
    /// The dead rows by reason.
    pub reasons: BTreeMap<String, u64>,
    /// The rows of the chunks that this worker has committed.
    pub committed: u64,
    /// The chunks that this worker has committed.
    pub committed_chunks: u64,
    /// The chunks that this worker has begun and not committed.
    pub open_chunks: u64,
    /// The rows that this worker has scored or found dead, and not committed, nor in parts.
    pub open_rows: u64,
    /// The rows a second that all hosts score for this worker.
    pub rows_per_second: f64,
    /// The rows a second that other workers have committed lately.
    pub elsewhere_per_second: f64,
    /// The bytes of rows, requests and answers in memory.
    pub memory: u64,
    /// The most bytes in memory so far.
    pub memory_peak: u64,
    /// The bytes that may be in memory.
    pub memory_limit: u64,
    /// The seconds in which rows waited to be read because answers waited to be written.
    pub blocked_seconds: f64,
    /// True while the job is paused.
    pub is_paused: bool,
    /// True while the worker waits for a store that does not answer.
    #[serde(default)]
    pub is_store_away: bool,
    /// The hosts.
    pub hosts: Vec<HostProgress>,
    /// The names of hosts that could not be looked up at the last time, each with the reason. They
    /// keep the addresses that they had.
    pub unresolved: Vec<String>,
    /// Remarks about columns of the input that may be meant for features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// One host, as a worker sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostProgress {
    /// Its endpoint.
    pub host: String,
    /// The most requests in flight.
    pub limit: usize,
    /// The reason of the limit: `start`, `round_trips`, `refusals`, `user` or `quota`.
    pub bound: String,
    /// The requests in flight.
    pub in_flight: usize,
    /// The circuit breaker: `closed`, `open` or `half_open`.
    pub breaker: String,
    /// The rows a second that it scored lately.
    pub rows_per_second: f64,
    /// The usual round trip, in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// The rows that it has scored.
    pub rows: u64,
    /// The requests.
    pub calls: u64,
    /// The requests that have failed.
    pub failed: u64,
    /// The tokens that it has used, for language models.
    pub tokens: u64,
    /// The requests by their end: one of [`ENDS`].
    pub ends: BTreeMap<String, u64>,
    /// The failure of the request that failed last.
    pub last_failure: Option<LastFailure>,
    /// The last answer to the question whether the model is ready there, if it was asked.
    pub health: Option<Health>,
}

/// A failure of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    /// The time (RFC 3339).
    pub time: String,
    /// The message, at most a few hundred characters.
    pub message: String,
}

/// The ends of requests: the rows were scored; the request was withdrawn because another host was
/// faster; or the class of the failure.
pub const ENDS: [&str; 10] = [
    "scored",
    "withdrawn",
    "unavailable",
    "overloaded",
    "lost",
    "timeout",
    "too_large",
    "refused",
    "ambiguous",
    "bad_reply",
];

/// The counts that the threads of a worker keep.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The rows that were read.
    pub(crate) read: AtomicU64,
    /// The rows that no tensor can hold, which are never sent.
    pub(crate) invalid: AtomicU64,
    /// The rows and the number of the chunks that were committed.
    pub(crate) committed: AtomicU64,
    pub(crate) committed_chunks: AtomicU64,
    /// The rows of this worker that are committed, in parts too.
    pub(crate) stored: AtomicU64,
    /// The rows in parts of chunks that this worker goes on with, and the dead ones of them.
    pub(crate) resumed: AtomicU64,
    pub(crate) resumed_dead: AtomicU64,
    /// The chunks that this worker has committed, or is about to.
    own: Mutex<BTreeSet<u64>>,
    /// The chunks that another worker has committed before this one, with the rows of them that are
    /// dead here.
    lost: Mutex<BTreeMap<u64, u64>>,
}

impl Counts {
    /// A chunk is about to be committed.
    pub(crate) fn commits(&self, chunk: u64) {
        self.own().insert(chunk);
    }

    /// The commit of a chunk with so many dead rows was not the first one.
    pub(crate) fn lost(&self, chunk: u64, dead: u64) {
        self.lost_chunks().insert(chunk, dead);
        self.own().remove(&chunk);
    }

    /// The dead rows in the commits that this worker does not count itself.
    pub(crate) fn elsewhere(&self, dead: &DeadRows) -> u64 {
        let lost: u64 = self.lost_chunks().values().sum();
        let resumed = self.resumed_dead.load(Relaxed);
        (dead.without(&self.own()) + resumed).saturating_sub(lost)
    }

    /// The chunks that this worker has committed, or is about to.
    pub(crate) fn own(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chunks that another worker has committed before this one, with their dead rows here.
    pub(crate) fn lost_chunks(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// The rows of the job that need no more work: those that are committed, and those that this
    /// worker has finished besides. A row that two workers have finished counts once.
    pub fn done(&self) -> u64 {
        let own = (self.scored + self.dead + self.resumed).saturating_sub(self.lost);
        self.before + self.elsewhere + own
    }

    /// The rows a second of all workers.
    pub fn job_per_second(&self) -> f64 {
        self.rows_per_second + self.elsewhere_per_second
    }

    /// Adds what the threads have counted.
    pub(crate) fn add(&mut self, counts: &Counts) {
        let invalid = counts.invalid.load(Relaxed);
        self.read = counts.read.load(Relaxed);
        self.dead += invalid;
        self.resumed = counts.resumed.load(Relaxed);
        let stored = counts.stored.load(Relaxed);
        self.open_rows = (self.scored + self.dead).saturating_sub(stored);
        self.committed = counts.committed.load(Relaxed);
        self.committed_chunks = counts.committed_chunks.load(Relaxed);
        if invalid > 0 {
            let reason = outrigger_dispatch::Reason::InvalidInput.name();
            *self.reasons.entry(reason.to_owned()).or_default() += invalid;
        }
    }
}

/// The latest progress of a run, and the request to interrupt it. Clones share both.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    latest: Arc<Mutex<Progress>>,
    interrupted: Arc<watch::Sender<bool>>,
}

impl Watch {
    /// The latest progress.
    pub fn get(&self) -> Progress {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Interrupts the run: it gives its chunks back, and returns [`Error::Interrupted`].
    ///
    /// [`Error::Interrupted`]: crate::Error::Interrupted
    pub fn interrupt(&self) {
        self.interrupted.send_replace(true);
    }

    /// Waits until the run is interrupted.
    pub(crate) async fn interrupted(&self) {
        let mut interrupted = self.interrupted.subscribe();
        // The sender is ours, so this ends with the wish.
        let _ = interrupted.wait_for(|is_interrupted| *is_interrupted).await;
    }

    /// Replaces the latest progress.
    pub fn set(&self, progress: Progress) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}
