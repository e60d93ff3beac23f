//! The rise of errors.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The time over which calls are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// The failures in it that are a rise: so many, and such a share of the calls that have ended.
const LEAST: u64 = 3;
const SHARE: u64 = 10;

/// Reports when calls begin to fail, and again and again while they do, at growing intervals.
#[derive(Debug)]
pub(super) struct Alarm {
    /// The calls that had ended and failed at the times of the last observations.
    seen: VecDeque<(Instant, u64, u64)>,
    /// The time before which no other rise is reported, and the interval after it.
    quiet: Instant,
    pause: Duration,
}

impl Alarm {
    /// An alarm before the first call.
    pub(super) fn new(now: Instant) -> Self {
        Self { seen: VecDeque::from([(now, 0, 0)]), quiet: now, pause: WINDOW }
    }

    /// True if failures have risen, by the calls that have `ended` and `failed` so far. Intervals
    /// between two reports grow up to `longest` while calls fail. Observations come once a second.
    pub(super) fn rises(
        &mut self,
        (ended, failed): (u64, u64),
        longest: Duration,
        now: Instant,
    ) -> bool {
        self.seen.push_back((now, ended, failed));
        // The last observation before the window is the one that calls are counted from.
        while self.seen.get(1).is_some_and(|(at, ..)| now - *at >= WINDOW) {
            self.seen.pop_front();
        }
        let (_, ended_before, failed_before) = self.seen[0];
        let (ended, failed) = (ended - ended_before, failed - failed_before);
        let is_high = failed >= LEAST && failed * SHARE >= ended;
        if !is_high {
            if now >= self.quiet {
                self.pause = WINDOW;
            }
            return false;
        }
        let is_reported = now >= self.quiet;
        if is_reported {
            self.quiet = now + self.pause;
            self.pause = (self.pause * 2).min(longest);
        }
        is_reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(120);

    /// The seconds at which a rise is reported, of these calls that end and fail in each second.
    fn rises(seconds: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let start = Instant::now();
        let mut alarm = Alarm::new(start);
        let (mut ended, mut failed, mut reported) = (0, 0, Vec::new());
        for (second, (more, faults)) in (1..).zip(seconds) {
            (ended, failed) = (ended + more, failed + faults);
            if alarm.rises((ended, failed), LONGEST, start + Duration::from_secs(second)) {
                reported.push(second);
            }
        }
        reported
    }

    fn repeated(calls: (u64, u64), seconds: usize) -> impl Iterator<Item = (u64, u64)> {
        std::iter::repeat_n(calls, seconds)
    }

    #[test]
    fn failures_are_reported_at_once() {
        let calm = || repeated((100, 1), 30);
        assert!(rises(calm()).is_empty(), "one in a hundred is no rise");
        assert_eq!(rises(calm().chain([(300, 290)])), [31]);
        assert_eq!(rises([(1, 1), (1, 1), (1, 1)].into_iter()), [3], "two failures are too few");
        let apart = repeated((1, 1), 1).chain(repeated((0, 0), 20)).chain([(2, 2)]);
        assert!(rises(apart).is_empty(), "they are not within the window");
    }

    #[test]
    fn failures_that_go_on_are_reported_at_growing_intervals() {
        assert_eq!(rises(repeated((9, 9), 400)), [1, 11, 31, 71, 151, 271, 391]);
    }

    #[test]
    fn after_a_calm_time_the_next_rise_is_reported_at_once() {
        let calls = repeated((9, 9), 40).chain(repeated((9, 0), 100)).chain(repeated((9, 9), 3));
        let reported = rises(calls);
        assert_eq!(reported.last(), Some(&141));
        assert_eq!(reported.len(), 4, "{reported:?}");
    }
}
