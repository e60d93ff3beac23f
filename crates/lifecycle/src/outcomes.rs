//! How outcomes of requests get from the threads that serve to the trial.

use std::{
    cell::Cell,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use outrigger_canary::{Draw, Exposures, Observation, Share};

/// Threads that note outcomes without sharing a place with another.
const SHARDS: usize = 64;
/// Outcomes kept in a place until they are collected, which is once a second.
const MOST: usize = 1 << 16;

/// Outcomes of one trial's requests. Each thread has a place of its own, of two
/// parts: whoever collects holds one of them at a time, so that a thread that
/// serves never waits.
#[derive(Debug)]
pub(crate) struct Outcomes {
    shards: Box<[Shard]>,
    exposures: Exposures,
    /// Found no room.
    lost: AtomicU64,
}

/// An outcome, with the canary's share at the time.
pub(crate) type Noted = (Option<Share>, Observation);

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([Mutex<Vec<Noted>>; 2]);

impl Default for Outcomes {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default());
        Self { shards: shards.collect(), exposures: Exposures::new(), lost: AtomicU64::new(0) }
    }
}

impl Outcomes {
    /// Notes an outcome. Never waits; without room it is only counted.
    pub(crate) fn note(&self, share: Option<Share>, observation: Observation) {
        for part in &self.shards[place_of_thread()].0 {
            let Ok(mut part) = part.try_lock() else { continue };
            if part.len() < MOST {
                part.push((share, observation));
                return;
            }
        }
        self.lost.fetch_add(1, Relaxed);
    }

    /// Whether a key is seen for the first time in this trial.
    pub(crate) fn is_first(&self, draw: Draw) -> bool {
        self.exposures.first(draw)
    }

    /// Takes what was noted.
    pub(crate) fn take(&self) -> Vec<Noted> {
        let parts = self.shards.iter().flat_map(|shard| &shard.0);
        let mut all = Vec::new();
        for part in parts {
            // A poisoned one holds whole outcomes all the same.
            let mut part = part.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let taken = std::mem::take(&mut *part);
            drop(part);
            all.extend(taken);
        }
        all
    }

    /// How many outcomes found no room, since the last time.
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
    use outrigger_core::Arm;

    use super::*;

    fn observation() -> Observation {
        Observation { arm: Arm::Live, latency: Duration::from_millis(1), outcome: Outcome::Empty }
    }

    #[test]
    fn nothing_is_lost_while_it_is_collected() {
        const EACH: usize = 20_000;
        let outcomes = Arc::new(Outcomes::default());
        let noting = || {
            let outcomes = Arc::clone(&outcomes);
            thread::spawn(move || (0..EACH).for_each(|_| outcomes.note(None, observation())))
        };
        let threads = [noting(), noting(), noting()];
        let mut taken = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            taken += outcomes.take().len();
        }
        taken += outcomes.take().len();
        assert_eq!((taken, outcomes.take_lost()), (3 * EACH, 0));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let outcomes = Outcomes::default();
        (0..2 * MOST + 3).for_each(|_| outcomes.note(None, observation()));
        assert_eq!((outcomes.take_lost(), outcomes.take_lost()), (3, 0));
        assert_eq!(outcomes.take().len(), 2 * MOST);
    }
}
