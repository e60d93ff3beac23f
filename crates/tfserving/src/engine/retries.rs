//! Retries of calls that failed because of another request in their batch.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use outrigger_core::ServableName;

/// The number of calls that permit one retry.
const CALLS_PER_RETRY: u32 = 10;
/// The largest number of retries that earlier calls permit.
const SAVED: u32 = 10;

/// The retries of one model: one at a time, and at most one for every ten calls.
///
/// A request that fails in a batch fails all others in it. The engine reports its error to each, so
/// a caller cannot tell which request was at fault.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// The calls that have not been used for a retry.
    calls: AtomicU32,
    is_busy: AtomicBool,
}

/// A retry that is in progress.
#[derive(Debug)]
pub(super) struct Retry<'a>(&'a Retries);

/// The retries of all models in an engine.
#[derive(Debug, Default)]
pub(super) struct RetriesByModel(Mutex<BTreeMap<ServableName, Weak<Retries>>>);

impl RetriesByModel {
    /// The retries of the model called `name`, which its versions share.
    pub(super) fn of(&self, name: &ServableName) -> Arc<Retries> {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(retries) = models.get(name).and_then(Weak::upgrade) {
            return retries;
        }
        // Names of models without a bound version are removed, so that the map stays small.
        models.retain(|_, retries| retries.strong_count() > 0);
        let retries = Arc::default();
        models.insert(name.clone(), Arc::downgrade(&retries));
        retries
    }
}

impl Retries {
    /// Counts a call that is not a retry.
    pub(super) fn count(&self) {
        self.change(|calls| Some((calls + 1).min(CALLS_PER_RETRY * SAVED)));
    }

    /// Begins a retry, if it is permitted.
    pub(super) fn begin(&self) -> Option<Retry<'_>> {
        if self.is_busy.swap(true, Relaxed) {
            return None;
        }
        let retry = Retry(self);
        self.change(|calls| calls.checked_sub(CALLS_PER_RETRY)).then_some(retry)
    }

    /// Changes the number of calls; false if `change` returns `None`.
    fn change(&self, change: impl FnMut(u32) -> Option<u32>) -> bool {
        self.calls.fetch_update(Relaxed, Relaxed, change).is_ok()
    }
}

impl Drop for Retry<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: u32) -> Retries {
        let retries = Retries::default();
        (0..calls).for_each(|_| retries.count());
        retries
    }

    fn permitted(retries: &Retries) -> usize {
        std::iter::from_fn(|| retries.begin().map(drop)).count()
    }

    #[test]
    fn one_call_in_ten_is_retried() {
        assert_eq!(permitted(&after(9)), 0);
        let retries = after(29);
        assert_eq!(permitted(&retries), 2);
        retries.count();
        assert_eq!(permitted(&retries), 1);
        assert_eq!(permitted(&after(100_000)), 10);
    }

    #[test]
    fn one_retry_is_in_progress_at_a_time() {
        let retries = after(100);
        let retry = retries.begin().expect("permitted");
        assert!(retries.begin().is_none());
        drop(retry);
        assert!(retries.begin().is_some());
    }

    #[test]
    fn versions_of_a_model_share_its_retries() {
        let name = |text: &str| ServableName::of(&text.parse().expect("a valid name"));
        let models = RetriesByModel::default();
        let live = models.of(&name("a"));
        assert!(Arc::ptr_eq(&live, &models.of(&name("a"))));
        let other = models.of(&name("b"));
        assert!(!Arc::ptr_eq(&live, &other));
        drop((live, other));
        models.of(&name("c"));
        assert_eq!(models.0.lock().expect("no panic").len(), 1);
    }
}
