//! Live's failures and slow answers, before the split and in a period since.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Observation, Outcome,
    statistics::{Sketch, sketch},
};

/// An answer is slow if it takes longer than this multiple of the 99th percentile,
const SLOW: f64 = 2.0;
/// and longer than the 99th percentile by so many seconds: models that answer in less have
/// such differences by chance, and callers hardly notice them.
const NOTICEABLE: f64 = 0.005;
/// The share of answers above the 99th percentile, which bounds that of the slow ones.
const ABOVE: f64 = 0.01;
/// Failures that are added to those seen: with none among `n` requests, a rate of `3 / n`
/// is still plausible (95 %; Hanley & Lippman-Hand 1983).
const UNSEEN: f64 = 3.0;
/// The evidence for a period that is far worse: `ln(10,000)`.
const NEEDED: f64 = 9.210_340_371_976_184;
/// The largest expected share: failures of an outage hide no later ones beyond it.
const LARGEST: f64 = 0.25;

/// The level of live's answers that is known to come without the canary.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub(super) struct Level {
    /// The bin of the latency sketch above which an answer is slow.
    slow: i32,
    /// An upper estimate of the share of requests that fail or are slow.
    expected: f64,
}

/// Live's requests of a period.
#[derive(Debug, Clone, Default)]
pub(super) struct Period {
    failed: u64,
    /// Answers whose latency says nothing about live.
    untimed: u64,
    latency: Sketch,
}

impl Period {
    /// Records a request; the latency is `None` if it says nothing about live.
    pub(super) fn record(&mut self, latency: Option<Duration>, is_failed: bool) {
        match latency {
            _ if is_failed => self.failed += 1,
            Some(latency) => self.latency.record(latency.as_secs_f64()),
            None => self.untimed += 1,
        }
    }

    pub(super) fn requests(&self) -> u64 {
        self.failed + self.untimed + self.latency.count()
    }

    /// The level of these requests, with so many further failures.
    fn level(&self, unseen: f64) -> Level {
        let requests = self.requests().max(1) as f64;
        let slowest = self.latency.quantile(1.0 - ABOVE).unwrap_or(Sketch::LEAST);
        let slow = sketch::index_of((SLOW * slowest).max(slowest + NOTICEABLE));
        let expected = (ABOVE + (self.failed as f64 + unseen) / requests).min(LARGEST);
        Level { slow, expected }
    }
}

impl Level {
    /// The level of live before the split.
    pub(super) fn of(sample: &[Observation]) -> Self {
        let mut before = Period::default();
        for seen in sample {
            before.record(seen.latency, seen.outcome == Outcome::Failed);
        }
        before.level(UNSEEN)
    }

    /// True if far more of the period's requests failed or were slow than at this level. If
    /// each does so independently with the expected probability at most, this happens in at
    /// most one of 10,000 periods: for `k` of `n` requests the probability is at most
    /// `exp(-n KL(k/n, expected))` (Chernoff 1952, Hoeffding 1963).
    pub(super) fn is_far_exceeded(&self, period: &Period) -> bool {
        let requests = period.requests() as f64;
        let bad = (period.failed + period.latency.above(self.slow)) as f64;
        if requests == 0.0 || bad <= self.expected * requests {
            return false;
        }
        requests * divergence(bad / requests, self.expected) >= NEEDED
    }

    /// Raises the level to that of a period without the canary.
    pub(super) fn raise(&mut self, alone: &Period) {
        let Self { slow, expected } = alone.level(0.0);
        self.slow = self.slow.max(slow);
        self.expected = self.expected.max(expected);
    }
}

/// The Kullback-Leibler divergence of two events with these probabilities.
fn divergence(seen: f64, expected: f64) -> f64 {
    let part = |seen: f64, expected: f64| {
        if seen == 0.0 { 0.0 } else { seen * (seen / expected).ln() }
    };
    part(seen, expected) + part(1.0 - seen, 1.0 - expected)
}

/// The serialised level before validation.
#[derive(Deserialize)]
struct Saved {
    slow: i32,
    expected: f64,
}

impl TryFrom<Saved> for Level {
    type Error = &'static str;

    fn try_from(Saved { slow, expected }: Saved) -> Result<Self, Self::Error> {
        match sketch::is_bin(slow) && expected > 0.0 && expected <= LARGEST {
            true => Ok(Self { slow, expected }),
            false => Err("not a level of live's answers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A period with so many usual, slow and failed requests.
    fn period(usual: u64, slow: u64, failed: u64) -> Period {
        let mut period = Period::default();
        (0..usual).for_each(|_| period.record(Some(Duration::from_millis(10)), false));
        (0..slow).for_each(|_| period.record(Some(Duration::from_millis(25)), false));
        (0..failed).for_each(|_| period.record(Some(Duration::from_millis(1)), true));
        period
    }

    #[test]
    fn live_is_far_worse_if_many_more_requests_fail_or_are_slow() {
        let level = period(1000, 0, 0).level(UNSEEN);
        let is_bad = |usual, slow, failed| level.is_far_exceeded(&period(usual, slow, failed));
        assert!(!is_bad(0, 0, 0));
        assert!(!is_bad(350, 7, 3), "it may be chance");
        assert!(is_bad(330, 30, 0) && is_bad(330, 0, 30) && is_bad(330, 15, 15));
        assert!(!is_bad(0, 2, 0) && is_bad(0, 3, 0), "few requests need to agree");
    }

    #[test]
    fn answers_without_a_latency_are_requests_that_are_not_bad() {
        let level = period(1000, 0, 0).level(UNSEEN);
        let mut untimed = period(0, 0, 4);
        assert!(level.is_far_exceeded(&untimed));
        (0..400).for_each(|_| untimed.record(None, false));
        assert_eq!(untimed.requests(), 404);
        assert!(!level.is_far_exceeded(&untimed));
    }

    #[test]
    fn requests_of_twice_the_usual_time_are_not_slow() {
        let level = period(1000, 0, 0).level(UNSEEN);
        let mut doubled = Period::default();
        (0..1000).for_each(|_| doubled.record(Some(Duration::from_millis(19)), false));
        assert!(!level.is_far_exceeded(&doubled));
    }

    #[test]
    fn a_fast_model_may_take_some_milliseconds_longer() {
        let period = |micros| {
            let mut period = Period::default();
            (0..1000).for_each(|_| period.record(Some(Duration::from_micros(micros)), false));
            period
        };
        let level = period(200).level(UNSEEN);
        assert!(!level.is_far_exceeded(&period(4000)) && level.is_far_exceeded(&period(6000)));
    }

    #[test]
    fn a_level_is_raised_to_that_of_live_alone_and_never_lowered() {
        let mut level = period(1000, 0, 0).level(UNSEEN);
        let worse = period(100, 100, 30);
        assert!(level.is_far_exceeded(&worse));
        level.raise(&worse);
        assert!(!level.is_far_exceeded(&worse));
        let raised = level;
        level.raise(&period(1000, 0, 0));
        level.raise(&Period::default());
        assert_eq!(level, raised);
        let outage = period(0, 0, 100);
        level.raise(&outage);
        assert!(level.is_far_exceeded(&outage), "an outage is never usual");
    }

    proptest! {
        #[test]
        fn a_worse_period_is_no_less_exceeding(
            usual in 1..500_u64, slow in 0..100_u64, failed in 0..100_u64, more in 0..100_u64,
        ) {
            let level = period(1000, 0, 5).level(UNSEEN);
            let exceeded = |slow| level.is_far_exceeded(&period(usual, slow, failed));
            prop_assert!(exceeded(slow + more) || !exceeded(slow));
        }
    }
}
