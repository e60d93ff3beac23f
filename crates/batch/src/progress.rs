//! The progress of a worker, as it shows and stores it.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The progress of one worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The name of the worker, which is random.
    pub worker: String,
    /// The time of this report (RFC 3339).
    pub time: String,
    /// The rows of the job.
    pub rows: u64,
    /// The rows that were committed when the worker began.
    pub before: u64,
    /// The rows that this worker has scored.
    pub scored: u64,
    /// The rows that this worker has found dead.
    pub dead: u64,
    /// The rows a second that all hosts score for this worker.
    pub rows_per_second: f64,
    /// The bytes of rows, requests and answers in memory.
    pub memory: u64,
    /// The most bytes in memory so far.
    pub memory_peak: u64,
    /// True while the job is paused.
    pub is_paused: bool,
    /// True while the worker waits for a store that does not answer.
    #[serde(default)]
    pub is_store_away: bool,
    /// The hosts.
    pub hosts: Vec<HostProgress>,
}

/// One host, as a worker sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostProgress {
    /// Its endpoint.
    pub host: String,
    /// The most requests in flight.
    pub limit: usize,
    /// The reason of the limit: `start`, `round_trips`, `refusals` or `user`.
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
}

impl Progress {
    /// The rows that need no more work.
    pub fn done(&self) -> u64 {
        self.before + self.scored + self.dead
    }
}

/// The latest progress, which several threads share.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Progress>>);

impl Watch {
    /// The latest progress.
    pub fn get(&self) -> Progress {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, progress: Progress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}
