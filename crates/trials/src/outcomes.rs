//! Outcomes of requests, passed from the serving threads to the trial.

use std::{
    cell::Cell,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use outrigger_canary::{Arm, Draw, Exposures, Observation, Pair, Share};

use crate::callers::Callers;

/// The number of threads that can record outcomes without sharing a shard.
const SHARDS: usize = 64;
/// The number of outcomes that a shard holds until the collection, which runs once a second.
const MOST: usize = 1 << 16;
/// The number of requests of an arm whose features are examined between two collections.
const FEATURES: u32 = 100;

/// Outcomes of one trial's requests. Each thread has its own shard of two parts. The collector
/// locks only one of them at a time, so a serving thread never waits.
#[derive(Debug)]
pub(crate) struct Outcomes {
    shards: Box<[Shard]>,
    exposures: Exposures,
    pub(crate) callers: Callers,
    /// The number of outcomes dropped because the shard was full.
    lost: AtomicU64,
    shadows: Shadows,
    /// The number of further requests of live and of the canary whose features are examined.
    features: [AtomicU32; 2],
}

/// Counts of requests that should have had an answer of the canary for comparison, and have none.
#[derive(Debug, Default)]
struct Shadows {
    /// Not sent, because the limit was reached.
    skipped: AtomicU64,
    /// Not answered by the canary.
    unanswered: AtomicU64,
}

/// A record of a request.
#[derive(Debug)]
pub(crate) enum Recorded {
    /// Its outcome, with the canary's share at the time.
    Outcome(Option<Share>, Observation),
    /// The outcome of a request that the comparison leaves out.
    LeftOut(Observation),
    /// The comparison of both arms' answers.
    Pair(Pair),
    /// The categories of the request's features, with the canary's share at the time.
    Features(Share, Arm, Vec<usize>),
}

/// A shard, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([Mutex<Vec<Recorded>>; 2]);

impl Outcomes {
    /// Creates an empty record for a trial that has seen the keys in `exposures`, and requests of
    /// these callers.
    pub(crate) fn new(exposures: Exposures, callers: Callers) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default());
        Self {
            shards: shards.collect(),
            exposures,
            callers,
            lost: AtomicU64::new(0),
            shadows: Shadows::default(),
            features: [FEATURES; 2].map(AtomicU32::new),
        }
    }

    /// Stores a record until it is collected. Never waits; if the shard is full, the record is only
    /// counted.
    pub(crate) fn record(&self, record: Recorded) {
        for part in &self.shards[place_of_thread()].0 {
            let Ok(mut part) = part.try_lock() else { continue };
            if part.len() < MOST {
                part.push(record);
                return;
            }
        }
        self.lost.fetch_add(1, Relaxed);
    }

    /// True if the key is seen for the first time in this trial.
    pub(crate) fn is_first(&self, draw: Draw) -> bool {
        self.exposures.first(draw)
    }

    /// True if the key is seen on an arm for the first time in this trial.
    pub(crate) fn is_first_on(&self, arm: Arm, draw: Draw) -> bool {
        self.exposures.first_on(arm, draw)
    }

    /// The keys that were seen, for a later process.
    pub(crate) fn exposures(&self) -> &Exposures {
        &self.exposures
    }

    /// True for the first [`FEATURES`] requests after each [`Self::take`], whose features are
    /// examined.
    pub(crate) fn wants_features(&self, arm: Arm) -> bool {
        let left = &self.features[usize::from(arm == Arm::Canary)];
        left.load(Relaxed) > 0
            && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Takes the records.
    pub(crate) fn take(&self) -> Vec<Recorded> {
        self.features.iter().for_each(|left| left.store(FEATURES, Relaxed));
        let parts = self.shards.iter().flat_map(|shard| &shard.0);
        let mut all = Vec::new();
        for part in parts {
            // A part is valid even after a panic, because it holds only whole outcomes.
            let mut part = part.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let taken = std::mem::take(&mut *part);
            drop(part);
            all.extend(taken);
        }
        all
    }

    /// Counts a request not sent to the canary because the limit was reached.
    pub(crate) fn count_skipped(&self) {
        self.shadows.skipped.fetch_add(1, Relaxed);
    }

    /// Counts a request sent to the canary in the background that it did not answer.
    pub(crate) fn count_unanswered(&self) {
        self.shadows.unanswered.fetch_add(1, Relaxed);
    }

    /// The numbers of requests not sent to the canary, and not answered by it, since the last call.
    pub(crate) fn take_unpaired(&self) -> (u64, u64) {
        (self.shadows.skipped.swap(0, Relaxed), self.shadows.unanswered.swap(0, Relaxed))
    }

    /// The number of outcomes dropped since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }
}

fn place_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    PLACE.get().unwrap_or_else(|| {
        let place = NEXT.fetch_add(1, Relaxed) % SHARDS;
        PLACE.set(Some(place));
        place
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use outrigger_canary::Outcome;

    use super::*;

    fn record() -> Recorded {
        let latency = Some(Duration::from_millis(1));
        Recorded::Outcome(None, Observation { arm: Arm::Live, latency, outcome: Outcome::Empty })
    }

    #[test]
    fn nothing_is_lost_while_it_is_collected() {
        const EACH: usize = 20_000;
        let outcomes = Arc::new(Outcomes::new(Exposures::new(), Callers::default()));
        let recording = || {
            let outcomes = Arc::clone(&outcomes);
            thread::spawn(move || (0..EACH).for_each(|_| outcomes.record(record())))
        };
        let threads = [recording(), recording(), recording()];
        let mut taken = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            taken += outcomes.take().len();
        }
        taken += outcomes.take().len();
        assert_eq!((taken, outcomes.take_lost()), (3 * EACH, 0));
    }

    #[test]
    fn features_are_looked_at_in_a_bounded_number_of_requests_of_each_arm() {
        let outcomes = Outcomes::new(Exposures::new(), Callers::default());
        let wanted = |arm| (0..1000).filter(|_| outcomes.wants_features(arm)).count();
        assert_eq!((wanted(Arm::Live), wanted(Arm::Live)), (FEATURES as usize, 0));
        assert_eq!(wanted(Arm::Canary), FEATURES as usize);
        outcomes.take();
        assert_eq!(wanted(Arm::Live), FEATURES as usize);
    }

    #[test]
    fn outcomes_without_room_are_counted() {
        let outcomes = Outcomes::new(Exposures::new(), Callers::default());
        (0..2 * MOST + 3).for_each(|_| outcomes.record(record()));
        assert_eq!((outcomes.take_lost(), outcomes.take_lost()), (3, 0));
        assert_eq!(outcomes.take().len(), 2 * MOST);
    }
}
