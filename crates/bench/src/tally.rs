//! What is counted while requests are answered.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use crate::failure::Failure;

/// The part of a run that counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Its first moment.
    pub(crate) start: Instant,
    /// The moment after its last.
    pub(crate) end: Instant,
}

impl Window {
    pub(crate) fn holds(&self, moment: Instant) -> bool {
        (self.start..self.end).contains(&moment)
    }
}

/// A request that is over.
#[derive(Debug)]
pub(crate) struct Done {
    /// When it should have been sent: its latency counts from there.
    pub(crate) due: Instant,
    /// When it was sent.
    pub(crate) sent: Instant,
    /// When it was over.
    pub(crate) ended: Instant,
    /// The bytes of its answer.
    pub(crate) outcome: Result<usize, Failure>,
}

/// Failures of one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) count: u64,
    /// What the first of them said.
    pub(crate) message: String,
}

/// Counts and latencies; several add up.
#[derive(Debug)]
pub(crate) struct Tally {
    /// From due to answered, of the requests that succeeded, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// From due to sent, of all that were sent, in nanoseconds.
    pub(crate) delay: Histogram<u64>,
    pub(crate) ok: u64,
    pub(crate) response_bytes: u64,
    pub(crate) failures: BTreeMap<String, Failures>,
    /// Answers and failures that came within the window, due before it or not.
    pub(crate) ended: u64,
    /// The answers among them.
    pub(crate) answered: u64,
}

impl Default for Tally {
    fn default() -> Self {
        // From 1 µs to an hour, exact to a thousandth.
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
    /// Counts a request whose `moment` decides whether it belongs to the window:
    /// when it was due in an open loop, when it was over in a closed one.
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

    /// Adds what another one has counted.
    pub(crate) fn merge(&mut self, other: Self) {
        let bounds = "both have the same bounds";
        self.latency.add(other.latency).expect(bounds);
        self.delay.add(other.delay).expect(bounds);
        self.ok += other.ok;
        self.response_bytes += other.response_bytes;
        self.ended += other.ended;
        self.answered += other.answered;
        for (reason, failures) in other.failures {
            let known = self.failures.entry(reason);
            known.and_modify(|known| known.count += failures.count).or_insert(failures);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
