//! How far transfers are.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Counts bytes that are received (or were there already) and hashed, for a
/// progress bar. Clones count together. A transfer that starts over takes its
/// bytes back.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Bytes so far.
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
