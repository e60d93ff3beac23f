//! Progress of a run.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;

use crate::{report::Phase, tally::Tally};

/// A callback that receives progress at the start of a warm-up and once a second.
pub type Observer<'a> = dyn FnMut(&Progress) + 'a;

/// The progress of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Its purpose within a search for a rate.
    pub phase: Option<Phase>,
    /// Requests due per second; `None` in a closed loop.
    pub offered_rate: Option<f64>,
    /// Elapsed time of the warm-up or of the measurement.
    pub elapsed: Duration,
    /// Total time of the warm-up or of the measurement.
    pub duration: Duration,
    /// Figures so far; `None` during the warm-up.
    pub measured: Option<Figures>,
}

/// Figures of a measurement so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Answers within the last second.
    pub answered: u64,
    /// Failures so far.
    pub failed: u64,
    /// The 99th percentile of the latency so far, in milliseconds.
    pub p99_ms: f64,
    /// Answers so far.
    all: u64,
}

impl Figures {
    /// The current figures, a second after `last`.
    pub(crate) fn read(last: Option<Self>, tallies: &[Arc<Mutex<Tally>>]) -> Self {
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
        let p99_ms = latency.map_or(0.0, |latency| latency.value_at_quantile(0.99) as f64 / 1e6);
        Self { answered: all - last.map_or(0, |last| last.all), failed, p99_ms, all }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(phase) = self.phase {
            write!(f, "{phase}  ")?;
        }
        if self.measured.is_none() {
            f.write_str("warm-up ")?;
        }
        write!(f, "{}/{} s", self.elapsed.as_secs(), self.duration.as_secs_f64().ceil())?;
        if let Some(rate) = self.offered_rate {
            write!(f, "  {rate:.1}/s due")?;
        }
        if let Some(Figures { answered, failed, p99_ms, .. }) = self.measured {
            write!(f, "  {answered}/s answered  p99 {p99_ms:.2} ms  {failed} failed")?;
        }
        Ok(())
    }
}
