//! A pool of memory: bytes that are counted, and that nobody can refuse.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

/// A pool of memory. Clones share it.
///
/// Unlike an [`Account`](crate::Account) it never refuses: what arrives has been allowed before. Who
/// fills it must slow down when it [is full](Self::is_full).
#[derive(Debug, Clone)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    limit: u64,
    used: AtomicU64,
}

impl Pool {
    /// A pool of `limit` bytes, which has this name in metrics.
    pub fn new(name: &'static str, limit: u64) -> Self {
        Self(Arc::new(Inner { name, limit, used: AtomicU64::new(0) }))
    }

    /// Its name in metrics.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Its size in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// The bytes that are in use. They may exceed the limit.
    pub fn used(&self) -> u64 {
        self.0.used.load(SeqCst)
    }

    /// True if it has no room.
    pub fn is_full(&self) -> bool {
        self.used() >= self.limit()
    }

    /// Counts bytes as in use.
    pub fn add(&self, bytes: u64) {
        self.0.used.fetch_add(bytes, SeqCst);
    }

    /// Counts bytes, which were added before, as free.
    pub fn release(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, SeqCst);
    }
}
