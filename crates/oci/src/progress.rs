//! Progress of transfers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Counts the bytes that are received, or were there already, and hashed; for a progress bar.
/// Clones share one count. A transfer that starts over subtracts its bytes again.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// The bytes counted so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
