//! Whether the next run of a model is expected to be short.

use std::{
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

/// Up to here, waking a thread for a run and being woken after it is a good part
/// of what the run costs.
const SHORT: Duration = Duration::from_millis(2);
/// Short runs until further ones are expected to be.
const TRUSTED: u32 = 8;
/// What is remembered of more.
const MOST: u32 = 4 * TRUSTED;
/// What a run that is not short takes away: a few are, because the machine is
/// busy; a model with more of them is not to be trusted.
const PENALTY: u32 = 4;

/// How the runs of one signature went.
#[derive(Debug, Default)]
pub struct Pace {
    /// Rises with short runs, falls with others.
    trust: AtomicU32,
    /// The longest request that had a short run, in bytes.
    longest: AtomicUsize,
}

impl Pace {
    /// Whether the run of a request of so many bytes is likely to be short:
    /// others were, and one of a request that is no smaller.
    pub fn is_short(&self, bytes: usize) -> bool {
        self.trust.load(Relaxed) >= TRUSTED && bytes <= self.longest.load(Relaxed)
    }

    /// Tells how long the run of a request of so many bytes took.
    pub fn record(&self, bytes: usize, took: Duration) {
        let trust = self.trust.load(Relaxed);
        let short = took <= SHORT;
        let next = if short { (trust + 1).min(MOST) } else { trust.saturating_sub(PENALTY) };
        // What another thread tells meanwhile may be lost: it is an estimate.
        // Not writing keeps the line in both threads' caches.
        if next != trust {
            self.trust.store(next, Relaxed);
        }
        if short && bytes > self.longest.load(Relaxed) {
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
    fn is_expected_to_be_short_what_was_so_often_enough_for_requests_as_large() {
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
    fn a_long_run_now_and_then_is_the_machine_s_and_more_are_the_model_s() {
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
