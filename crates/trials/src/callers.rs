//! The parts that callers have in the evidence of a trial.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use outrigger_canary::Draw;
use serde::{Deserialize, Serialize};

/// The number of places for callers. Callers that share a place count as one.
const PLACES: u64 = 256;
/// Counted requests that are assumed to come from others, so that the first of a trial count.
const SLACK: u64 = 16;

/// Counts of a trial's requests by caller, so that one caller alone does not decide it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(from = "Vec<[u64; 2]>", into = "Vec<[u64; 2]>")]
pub(crate) struct Callers {
    /// The requests of each caller in the warm-up and in the comparison.
    places: Box<[[AtomicU64; 2]]>,
    all: [AtomicU64; 2],
}

impl Callers {
    /// Counts a request of a caller in the warm-up.
    pub(crate) fn measure(&self, caller: Draw) {
        self.count(caller, 0);
    }

    /// Counts a request of a caller in the comparison, unless the caller has its part of that already:
    /// a quarter, or twice its part of the warm-up if that is more. So whoever sent most requests
    /// before the split is not limited, and nobody else can keep the others from a verdict.
    pub(crate) fn admits(&self, caller: Draw) -> bool {
        let [measured, own] = self.places[caller.place(PLACES)].each_ref().map(load);
        let [all_measured, all] = self.all.each_ref().map(load);
        let all = all + SLACK;
        let is_within = own.saturating_mul(4) < all
            || own.saturating_mul(all_measured) < measured.saturating_mul(2).saturating_mul(all);
        if is_within {
            self.count(caller, 1);
        }
        is_within
    }

    fn count(&self, caller: Draw, part: usize) {
        self.places[caller.place(PLACES)][part].fetch_add(1, Relaxed);
        self.all[part].fetch_add(1, Relaxed);
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

impl Default for Callers {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl Clone for Callers {
    fn clone(&self) -> Self {
        self.places.iter().map(|place| place.each_ref().map(load)).collect::<Vec<_>>().into()
    }
}

impl From<Callers> for Vec<[u64; 2]> {
    fn from(callers: Callers) -> Self {
        callers.places.into_iter().map(|place| place.map(AtomicU64::into_inner)).collect()
    }
}

impl From<Vec<[u64; 2]>> for Callers {
    fn from(mut places: Vec<[u64; 2]>) -> Self {
        places.resize(PLACES as usize, [0; 2]);
        let all =
            [0, 1].map(|part| places.iter().fold(0, |sum: u64, it| sum.saturating_add(it[part])));
        let places = places.into_iter().map(|place| place.map(AtomicU64::new)).collect();
        Self { places, all: all.map(AtomicU64::new) }
    }
}

#[cfg(test)]
mod tests {
    use outrigger_canary::Salt;

    use super::*;

    fn caller(name: &str) -> Draw {
        Draw::of_key(&Salt::default(), name)
    }

    /// The number of 1,000 requests of a caller that are admitted.
    fn admitted(callers: &Callers, name: &str) -> usize {
        (0..1000).filter(|_| callers.admits(caller(name))).count()
    }

    #[test]
    fn a_caller_of_whom_the_warm_up_knows_nothing_has_a_quarter() {
        let callers = Callers::default();
        (0..100).for_each(|_| callers.measure(caller("web")));
        assert_eq!(admitted(&callers, "other"), 6, "alone it decides nothing");
        assert_eq!(admitted(&callers, "web"), 1000);
        // A later process continues with the counts.
        let callers = Callers::from(Vec::from(callers));
        let more = admitted(&callers, "other");
        assert!((300..340).contains(&more), "{more}");
        assert_eq!(admitted(&callers, "web"), 1000);
    }

    #[test]
    fn callers_of_the_warm_up_have_up_to_twice_their_part_of_it() {
        let callers = Callers::default();
        for _ in 0..100 {
            ["a", "a", "b", "c"].iter().for_each(|name| callers.measure(caller(name)));
        }
        assert_eq!(admitted(&callers, "a"), 1000);
        let of_b = admitted(&callers, "b");
        assert_eq!(of_b, 1000, "half of all is within its part");
        assert!(admitted(&callers, "b") < 50);
    }
}
