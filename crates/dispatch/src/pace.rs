//! The usual round trips of a host.

use std::time::Duration;

/// The weight of the latest round trip.
const WEIGHT: f64 = 0.125;
/// The classes of sizes: a class for each doubling of the rows.
const SIZES: usize = 33;

/// The means of round trips by the size of calls, in seconds; recent ones weigh more.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    means: [Option<f64>; SIZES],
    /// The mean of the size that was recorded last.
    last: Option<Duration>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { means: [None; SIZES], last: None }
    }

    pub(crate) fn record(&mut self, rows: u32, round_trip: Duration) {
        let seconds = round_trip.as_secs_f64();
        let mean = &mut self.means[size(rows)];
        let new = mean.map_or(seconds, |mean| mean + (seconds - mean) * WEIGHT);
        *mean = Some(new);
        self.last = Some(Duration::from_secs_f64(new));
    }

    /// The usual round trip of a call of the size that has ended last.
    pub(crate) fn last(&self) -> Option<Duration> {
        self.last
    }

    /// The usual round trip of a call with these rows: that of calls of about this size, else of
    /// larger ones, else that of smaller ones in proportion to the rows.
    pub(crate) fn expected(&self, rows: u32) -> Option<Duration> {
        let of = size(rows);
        let at_least = self.means[of..].iter().find_map(|mean| *mean);
        let smaller = || {
            let (found, mean) =
                self.means[..of].iter().enumerate().rev().find_map(|(at, m)| Some((at, (*m)?)))?;
            Some(mean * 2_f64.powi((of - found) as i32))
        };
        let seconds = at_least.or_else(smaller)?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

/// The class of a size: the number of bits of the rows.
fn size(rows: u32) -> usize {
    (u32::BITS - rows.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_size_that_was_not_seen_takes_its_time_from_the_nearest() {
        let mut pace = Pace::new();
        assert_eq!(pace.expected(8), None);
        pace.record(64, millis(100));
        assert_eq!(pace.expected(100), Some(millis(100)));
        assert_eq!(pace.expected(1), Some(millis(100)), "a larger one is an upper bound");
        assert_eq!(pace.expected(256), Some(millis(400)), "in proportion");
        pace.record(1, millis(10));
        assert_eq!(pace.expected(1), Some(millis(10)));
    }

    #[test]
    fn recent_round_trips_weigh_more() {
        let mut pace = Pace::new();
        pace.record(1, millis(100));
        (0..50).for_each(|_| pace.record(1, millis(300)));
        let expected = pace.expected(1).expect("a mean");
        assert!(expected > millis(299) && expected <= millis(300), "{expected:?}");
    }
}
