//! A number of places that can change.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

/// Places, some of which are taken.
#[derive(Debug)]
pub(super) struct Places {
    taken: AtomicU32,
    most: AtomicU32,
}

/// A place that is given back when dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Places);

impl Places {
    pub(super) fn new(most: u32) -> Self {
        Self { taken: AtomicU32::new(0), most: most.into() }
    }

    /// Changes the number of places. Those that are taken stay taken.
    pub(super) fn resize(&self, most: u32) {
        self.most.store(most, SeqCst);
    }

    /// Takes a place; false if there is none.
    pub(super) fn take(&self) -> bool {
        let most = self.most.load(SeqCst);
        let more = |taken: u32| (taken < most).then(|| taken + 1);
        self.taken.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, SeqCst);
    }

    /// Takes a place until the result is dropped.
    pub(super) fn hold(&self) -> Option<Held<'_>> {
        self.take().then(|| Held(self))
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken() >= self.most.load(Relaxed)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}
