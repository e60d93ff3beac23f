//! The versions that wait for room in an account.

use std::sync::{Mutex, MutexGuard, PoisonError};

use outrigger_core::Digest;

/// The digests of the versions that wait, each as often as it waits.
#[derive(Default)]
pub(super) struct Queue(Mutex<Vec<Digest>>);

/// A version's entry, removed when dropped.
pub(super) struct Queued<'a> {
    queue: &'a Queue,
    version: Digest,
}

impl Queue {
    pub(super) fn enter(&self, version: Digest) -> Queued<'_> {
        self.lock().push(version);
        Queued { queue: self, version }
    }

    pub(super) fn contains(&self, version: &Digest) -> bool {
        self.lock().contains(version)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Digest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        if let Some(at) = queue.iter().position(|version| *version == self.version) {
            queue.swap_remove(at);
        }
    }
}
