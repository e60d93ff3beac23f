//! What can be told while a run goes on.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;

use crate::tally::Tally;

/// Is told of progress once a second.
pub type Observer<'a> = dyn FnMut(&Progress) + 'a;

/// How far a measurement is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Requests due a second; none in a closed loop.
    pub offered_rate: Option<f64>,
    /// What has passed of it.
    pub elapsed: Duration,
    /// How long it is.
    pub duration: Duration,
    /// Answers within the last second.
    pub answered: u64,
    /// Failures so far.
    pub failed: u64,
    /// The 99th percentile of the latency so far, in milliseconds.
    pub p99_ms: f64,
    all: u64,
}

impl Progress {
    pub(crate) fn new(offered_rate: Option<f64>, duration: Duration) -> Self {
        let elapsed = Duration::ZERO;
        Self { offered_rate, elapsed, duration, answered: 0, failed: 0, p99_ms: 0.0, all: 0 }
    }

    pub(crate) fn update(&mut self, elapsed: Duration, tallies: &[Arc<Mutex<Tally>>]) {
        self.elapsed = elapsed;
        let (mut all, mut failed) = (0, 0);
        let mut latency: Option<Histogram<u64>> = None;
        for tally in tallies {
            let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            all += tally.answered;
            failed += tally.failed();
            match &mut latency {
                Some(sum) => sum.add(&tally.latency).expect("both have the same bounds"),
                None => latency = Some(tally.latency.clone()),
            }
        }
        self.p99_ms = latency.map_or(0.0, |latency| latency.value_at_quantile(0.99) as f64 / 1e6);
        self.answered = all - self.all;
        (self.all, self.failed) = (all, failed);
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, duration, answered, failed, p99_ms, .. } = self;
        let (elapsed, duration) = (elapsed.as_secs(), duration.as_secs());
        write!(f, "{elapsed}/{duration} s  {answered}/s")?;
        if let Some(rate) = self.offered_rate {
            write!(f, " of {rate:.0}/s")?;
        }
        write!(f, "  p99 {p99_ms:.2} ms  {failed} failed")
    }
}
