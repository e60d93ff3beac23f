//! Predicts whether the next run of a model will be short. A short run takes place on the thread
//! that serves the request; a long one on a thread that may block, so that it does not delay other
//! requests.

use std::{
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

/// Longest run that counts as short. Below it the cost of waking a thread and being woken
/// again is a considerable part of the run's cost.
const SHORT: Duration = Duration::from_millis(2);
/// Trust from which further short runs are expected.
const TRUSTED: u32 = 8;
/// Upper limit of trust.
const MOST: u32 = 4 * TRUSTED;
/// Loss of trust by a long run. Single long runs occur on a busy machine; a model with
/// frequent ones must not be trusted.
const PENALTY: u32 = 4;

/// An estimate from the run times of one signature of a model.
#[derive(Debug, Default)]
pub struct Pace {
    /// Rises with short runs, falls with long ones.
    trust: AtomicU32,
    /// Size of the largest request that had a short run, in bytes.
    longest: AtomicUsize,
}

impl Pace {
    /// Whether the run of a request of `bytes` bytes is likely to be short: earlier runs
    /// were short, one of them for a request that was no smaller.
    pub fn is_short(&self, bytes: usize) -> bool {
        self.trust.load(Relaxed) >= TRUSTED && bytes <= self.longest.load(Relaxed)
    }

    /// Records the duration of a run for a request of `bytes` bytes.
    pub fn record(&self, bytes: usize, took: Duration) {
        let (trust, longest) = (self.trust.load(Relaxed), self.longest.load(Relaxed));
        let short = took <= SHORT;
        let next = match short {
            true => (trust + 1).min(MOST),
            // The run was not expected to be short, and says nothing about smaller requests.
            false if bytes > longest => trust,
            false => trust.saturating_sub(PENALTY),
        };
        // A concurrent update may be lost; an estimate tolerates that. Skipping the write
        // when nothing changes keeps the cache line shared between threads.
        if next != trust {
            self.trust.store(next, Relaxed);
        }
        if short && bytes > longest {
            self.longest.store(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(3);

    fn record(pace: &Pace, times: u32, bytes: usize, took: Duration) {
        (0..times).for_each(|_| pace.record(bytes, took));
    }

    #[test]
    fn a_run_is_expected_to_be_short_after_enough_short_runs_of_requests_as_large() {
        let pace = Pace::default();
        record(&pace, TRUSTED - 1, 100, SHORT);
        assert!(!pace.is_short(100));
        pace.record(50, SHORT);
        assert!(pace.is_short(100));
        assert!(!pace.is_short(101));
        pace.record(101, LONG);
        record(&pace, PENALTY, 1, SHORT);
        assert!(!pace.is_short(101));
        pace.record(101, SHORT);
        assert!(pace.is_short(101));
    }

    #[test]
    fn long_runs_of_larger_requests_say_nothing_about_small_ones() {
        let pace = Pace::default();
        record(&pace, TRUSTED, 100, SHORT);
        record(&pace, MOST, 101, LONG);
        assert!(pace.is_short(100) && !pace.is_short(101));
    }

    #[test]
    fn rare_long_runs_are_tolerated_and_frequent_ones_are_not() {
        let pace = Pace::default();
        record(&pace, MOST, 1, SHORT);
        for _ in 0..100 {
            record(&pace, 2 * PENALTY, 1, SHORT);
            pace.record(1, LONG);
            assert!(pace.is_short(1));
        }
        record(&pace, MOST / PENALTY, 1, LONG);
        assert!(!pace.is_short(1));
    }
}
