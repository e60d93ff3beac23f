//! The habits of a connection: the version that its requests ask for, and the memory that they
//! need. Both stand in the body of a request, and are needed before it is read.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use outrigger_lifecycle::Load;
use tokio::time::Instant;

/// The number of requests for one version after which the next one is expected to be for it too.
const SURE: u32 = 8;

/// The habits of a connection.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    version: Mutex<Version>,
    /// The memory that its requests need.
    pub(crate) needs: Needs,
}

/// The version that the latest requests asked for.
#[derive(Debug, Default)]
struct Version {
    load: Option<Arc<Load>>,
    /// The number of requests for it in a row.
    count: u32,
}

impl Habit {
    /// Records the load of the version that a request asks for.
    pub(crate) fn asked_for(&self, load: &Arc<Load>) {
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        match &version.load {
            Some(last) if Arc::ptr_eq(last, load) => {
                version.count = version.count.saturating_add(1);
            }
            _ => *version = Version { load: Some(Arc::clone(load)), count: 1 },
        }
    }

    /// The load of the version that the next request most likely asks for, if that is crowded.
    pub(crate) fn crowded(&self, now: Instant) -> Option<Arc<Load>> {
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let load = version.load.as_ref().filter(|_| version.count >= SURE)?;
        load.is_crowded(now).then(|| Arc::clone(load))
    }
}

/// The memory that requests needed lately, in bytes: at least that of the largest of the latest.
#[derive(Debug, Default)]
pub(crate) struct Needs(AtomicU64);

impl Needs {
    pub(crate) fn of(bytes: u64) -> Self {
        Self(bytes.into())
    }

    /// The estimate; `None` if nothing is known.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Raises the estimate to the need of a request so far.
    pub(crate) fn raise(&self, bytes: u64) {
        self.0.fetch_max(bytes, Relaxed);
    }

    /// Records the need of a request. The estimate rises at once, and falls by an eighth of the
    /// difference. Threads that record at the same time may lose a record.
    pub(crate) fn learn(&self, bytes: u64) {
        let before = self.0.load(Relaxed);
        self.0.store(bytes.max(before - before / 8 + bytes / 8), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_expected_after_some_requests_in_a_row() {
        // Nothing is known about their durations, so they count as crowded.
        let (one, other) = (Arc::new(Load::default()), Arc::new(Load::default()));
        let (habit, now) = (Habit::default(), Instant::now());
        for _ in 0..SURE {
            assert!(habit.crowded(now).is_none());
            habit.asked_for(&one);
        }
        assert!(Arc::ptr_eq(&habit.crowded(now).unwrap(), &one));
        habit.asked_for(&other);
        assert!(habit.crowded(now).is_none(), "a connection with several models");
    }

    #[test]
    fn the_estimate_rises_at_once_and_falls_slowly() {
        let needs = Needs::default();
        assert_eq!(needs.get(), None);
        needs.learn(1000);
        needs.learn(200);
        assert_eq!(needs.get(), Some(900));
        (0..100).for_each(|_| needs.learn(200));
        assert!(needs.get().unwrap() < 220, "{needs:?}");
    }
}
