//! Counts and latencies of requests.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::failure::Failure;

/// The measured time of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// The start, inclusive.
    pub(crate) start: Instant,
    /// The end, exclusive.
    pub(crate) end: Instant,
}

impl Window {
    pub(crate) fn holds(&self, moment: Instant) -> bool {
        (self.start..self.end).contains(&moment)
    }

    /// Moves the end to `moment`, if that is earlier.
    pub(crate) fn cut(&mut self, moment: Instant) {
        self.end = self.end.min(moment);
    }

    pub(crate) fn duration(&self) -> Duration {
        self.end.saturating_duration_since(self.start)
    }
}

/// A request that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// The connection on which it was sent.
    pub(crate) connection: usize,
    /// Its due time, from which the latency counts.
    pub(crate) due: Instant,
    /// The time at which it was sent.
    pub(crate) sent: Instant,
    /// The time of its answer or failure.
    pub(crate) ended: Instant,
    /// The size of its answer in bytes.
    pub(crate) outcome: Result<usize, Failure>,
}

/// Failures with the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) count: u64,
    /// The message of the first failure.
    pub(crate) message: String,
}

/// Counts and latencies of requests; tallies can be merged.
#[derive(Debug)]
pub(crate) struct Tally {
    /// From due time to answer, of successful requests, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// From due time to sending, of all requests that were sent, in nanoseconds.
    pub(crate) delay: Histogram<u64>,
    pub(crate) ok: u64,
    pub(crate) response_bytes: u64,
    pub(crate) failures: BTreeMap<String, Failures>,
    /// Answers and failures within the window; their requests may have been due before
    /// it.
    pub(crate) ended: u64,
    /// The answers among these.
    pub(crate) answered: u64,
}

impl Default for Tally {
    fn default() -> Self {
        // From 1 µs to an hour, with a precision of a thousandth.
        let histogram = Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3);
        let histogram = histogram.expect("valid bounds");
        Self {
            latency: histogram.clone(),
            delay: histogram,
            ok: 0,
            response_bytes: 0,
            failures: BTreeMap::new(),
            ended: 0,
            answered: 0,
        }
    }
}

impl Tally {
    /// Counts a request if `moment` is within the window: in an open loop its due time,
    /// in a closed loop its end.
    pub(crate) fn add(&mut self, done: Done, moment: Instant, window: &Window) {
        if window.holds(done.ended) {
            self.ended += 1;
            self.answered += u64::from(done.outcome.is_ok());
        }
        if !window.holds(moment) {
            return;
        }
        self.delay.saturating_record(nanoseconds(done.sent - done.due));
        match done.outcome {
            Ok(bytes) => {
                self.ok += 1;
                self.response_bytes += bytes as u64;
                self.latency.saturating_record(nanoseconds(done.ended - done.due));
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// Counts a failure.
    pub(crate) fn fail(&mut self, Failure { reason, message }: Failure) {
        match self.failures.get_mut(&*reason) {
            Some(failures) => failures.count += 1,
            None => {
                self.failures.insert(reason.into_owned(), Failures { count: 1, message });
            }
        }
    }

    /// The number of failures.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().map(|failures| failures.count).sum()
    }

    /// The number of failures of each reason.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.failures.iter().map(|(reason, failures)| (reason.clone(), failures.count)).collect()
    }

    /// Adds the counts of another tally.
    pub(crate) fn merge(&mut self, other: &Self) {
        let bounds = "both have the same bounds";
        self.latency.add(&other.latency).expect(bounds);
        self.delay.add(&other.delay).expect(bounds);
        self.ok += other.ok;
        self.response_bytes += other.response_bytes;
        self.ended += other.ended;
        self.answered += other.answered;
        for (reason, failures) in &other.failures {
            match self.failures.get_mut(reason) {
                Some(known) => known.count += failures.count,
                None => drop(self.failures.insert(reason.clone(), failures.clone())),
            }
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn window() -> Window {
        let start = Instant::now();
        Window { start, end: start + 100 * MS }
    }

    /// A request that was due `due` ms after the window's start, sent 20 ms and answered
    /// 30 ms later.
    fn done(window: &Window, due: u32, outcome: Result<usize, Failure>) -> Done {
        let due = window.start + due * MS;
        Done { connection: 0, due, sent: due + 20 * MS, ended: due + 30 * MS, outcome }
    }

    #[test]
    fn latency_counts_from_the_due_time() {
        let (window, mut tally) = (window(), Tally::default());
        let done = done(&window, 10, Ok(7));
        let due = done.due;
        tally.add(done, due, &window);
        let millis = |histogram: &Histogram<u64>| (histogram.max() as f64 / 1e6).round();
        assert_eq!((millis(&tally.latency), millis(&tally.delay)), (30.0, 20.0));
        assert_eq!((tally.ok, tally.response_bytes), (1, 7));
    }

    #[test]
    fn requests_count_by_their_due_time_and_throughput_by_the_answers_time() {
        let (window, mut tally) = (window(), Tally::default());
        for due in [0, 60, 90, 100] {
            let done = done(&window, due, Ok(0));
            let due = done.due;
            tally.add(done, due, &window);
        }
        // The request due at 90 ms is answered after the window, that at 100 ms is due
        // after it.
        assert_eq!((tally.ok, tally.answered, tally.ended), (3, 2, 2));
    }

    #[test]
    fn tallies_add_up_by_reason() {
        let (window, mut sum) = (window(), Tally::default());
        for outcome in [Ok(5), Err(Failure::timeout()), Err(Failure::saturated())] {
            let mut tally = Tally::default();
            let done = done(&window, 0, outcome);
            let due = done.due;
            tally.add(done, due, &window);
            tally.fail(Failure::timeout());
            sum.merge(&tally);
        }
        let errors = [("CLIENT_SATURATED".to_owned(), 1), ("CLIENT_TIMEOUT".to_owned(), 4)];
        assert_eq!(sum.errors(), errors.into());
        assert_eq!((sum.ok, sum.failed(), sum.answered, sum.ended), (1, 5, 1, 3));
        assert_eq!((sum.latency.len(), sum.delay.len()), (1, 3));
    }
}
