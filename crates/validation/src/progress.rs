//! Progress of a run, for a progress bar.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The parts of [`Progress::fraction`].
const PARTS: f64 = 1e9;

/// The progress of a run.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    rows: AtomicU64,
    errors: AtomicU64,
}

impl Progress {
    /// The part of the file that has been scored, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        self.done.load(Relaxed) as f64 / PARTS
    }

    /// The number of rows that have been scored or have failed.
    pub fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// The number of errors.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    pub(crate) fn set(&self, fraction: f64, rows: u64, errors: u64) {
        self.done.store((fraction * PARTS) as u64, Relaxed);
        self.rows.store(rows, Relaxed);
        self.errors.store(errors, Relaxed);
    }
}
