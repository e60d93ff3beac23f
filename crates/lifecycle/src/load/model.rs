//! The load of a model: that of all its versions together.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
};

use super::Load;

/// The requests in progress of all versions of a model, and the most that there may be.
#[derive(Debug, Default)]
pub(crate) struct ModelLoad {
    /// 0: no limit.
    most: AtomicU32,
    pub(super) in_flight: AtomicU32,
    pub(super) waiting: AtomicU32,
    versions: Mutex<Vec<Weak<Load>>>,
}

impl ModelLoad {
    /// Adds a version, and forgets those that are gone.
    pub(super) fn add(&self, version: &Arc<Load>) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.retain(|version| version.strong_count() > 0);
        versions.push(Arc::downgrade(version));
    }

    pub(super) fn allow(&self, most: u32) {
        if self.most.load(Relaxed) != most {
            self.most.store(most, Relaxed);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        let most = self.most.load(Relaxed);
        most > 0 && self.in_flight.load(Relaxed) >= most
    }

    /// Counts a request in progress; false if there may be no more.
    pub(super) fn take(&self) -> bool {
        let most = self.most.load(Relaxed);
        let more = |count: u32| (most == 0 || count < most).then_some(count + 1);
        self.in_flight.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Counts a request in progress, also beyond the limit.
    pub(super) fn take_beyond(&self) {
        self.in_flight.fetch_add(1, SeqCst);
    }

    pub(super) fn give_back(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// Counts a request that waits.
    pub(super) fn waits(&self) {
        self.waiting.fetch_add(1, SeqCst);
    }

    /// Counts a request less that waits.
    pub(super) fn has_waited(&self) {
        self.waiting.fetch_sub(1, SeqCst);
    }

    /// Admits waiting requests for other versions than `version`, of which a request has ended. The
    /// versions take turns.
    pub(super) fn admit_others(&self, version: &Load, now: u64) {
        if self.waiting.load(SeqCst) <= version.waiting.load(SeqCst) {
            return;
        }
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if !versions.is_empty() {
            versions.rotate_left(1);
        }
        let all: Vec<_> = versions.iter().filter_map(Weak::upgrade).collect();
        drop(versions);
        let others = all.iter().filter(|other| !std::ptr::eq(&***other, version));
        others.for_each(|other| other.admit_waiting(now));
    }
}
