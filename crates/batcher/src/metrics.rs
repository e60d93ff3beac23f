//! The metrics of this crate.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use outrigger_core::{EngineId, Metric, MetricKind};

use crate::queue::Full;

const ROWS: &str = "outrigger_batcher_run_rows";
const CALLS: &str = "outrigger_batcher_run_calls";
const WAIT: &str = "outrigger_batcher_wait_seconds";
const WAITING_CALLS: &str = "outrigger_batcher_waiting_calls";
const WAITING_BYTES: &str = "outrigger_batcher_waiting_bytes";
const REFUSALS: &str = "outrigger_batcher_refusals_total";
const DIVISIONS: &str = "outrigger_batcher_divisions_total";
const ALONE: &str = "outrigger_batcher_alone_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[
    Metric {
        name: ROWS,
        kind: MetricKind::Histogram,
        labels: &["engine"],
        help: "Rows of each run of a batch.",
    },
    Metric {
        name: CALLS,
        kind: MetricKind::Histogram,
        labels: &["engine"],
        help: "Calls of each run of a batch.",
    },
    Metric {
        name: WAIT,
        kind: MetricKind::Histogram,
        labels: &["engine"],
        help: "Time from the arrival of the first call of a batch until the batch is run.",
    },
    Metric {
        name: WAITING_CALLS,
        kind: MetricKind::Gauge,
        labels: &["engine"],
        help: "Calls that wait for a batch.",
    },
    Metric {
        name: WAITING_BYTES,
        kind: MetricKind::Gauge,
        labels: &["engine"],
        help: "Size of the inputs of calls that wait for a batch.",
    },
    Metric {
        name: REFUSALS,
        kind: MetricKind::Counter,
        labels: &["engine", "limit"],
        help: "Calls that were refused because the limit of waiting calls was reached, by limit \
               (calls, bytes).",
    },
    Metric {
        name: DIVISIONS,
        kind: MetricKind::Counter,
        labels: &["engine"],
        help: "Runs that were made again for each half of their calls, because one call may have \
               made them fail, or because there was no memory for their joined inputs.",
    },
    Metric {
        name: ALONE,
        kind: MetricKind::Counter,
        labels: &["engine"],
        help: "Calls that were run by themselves because they cannot be joined with others.",
    },
];

/// The metrics of one engine.
#[derive(Debug)]
pub(crate) struct Metrics {
    rows: Histogram,
    calls: Histogram,
    wait: Histogram,
    waiting_calls: Gauge,
    waiting_bytes: Gauge,
    refused_for_calls: Counter,
    refused_for_bytes: Counter,
    divisions: Counter,
    alone: Counter,
}

impl Metrics {
    /// Registers every series at zero, so that rate() sees the first increment.
    pub(crate) fn new(engine: &EngineId) -> Self {
        let engine = engine.to_string();
        let counter = |name: &'static str| metrics::counter!(name, "engine" => engine.clone());
        let gauge = |name: &'static str| metrics::gauge!(name, "engine" => engine.clone());
        let histogram = |name: &'static str| metrics::histogram!(name, "engine" => engine.clone());
        let refused = |limit: &'static str| metrics::counter!(REFUSALS, "engine" => engine.clone(), "limit" => limit);
        let new = Self {
            rows: histogram(ROWS),
            calls: histogram(CALLS),
            wait: histogram(WAIT),
            waiting_calls: gauge(WAITING_CALLS),
            waiting_bytes: gauge(WAITING_BYTES),
            refused_for_calls: refused("calls"),
            refused_for_bytes: refused("bytes"),
            divisions: counter(DIVISIONS),
            alone: counter(ALONE),
        };
        for counter in [&new.refused_for_calls, &new.refused_for_bytes, &new.divisions, &new.alone]
        {
            counter.absolute(0);
        }
        for gauge in [&new.waiting_calls, &new.waiting_bytes] {
            gauge.increment(0.0);
        }
        new
    }

    /// Records a change of the waiting calls and their size in bytes.
    pub(crate) fn waiting(&self, before: (usize, usize), after: (usize, usize)) {
        for (gauge, before, after) in
            [(&self.waiting_calls, before.0, after.0), (&self.waiting_bytes, before.1, after.1)]
        {
            if before != after {
                #[allow(clippy::cast_precision_loss)]
                gauge.increment(after as f64 - before as f64);
            }
        }
    }

    /// Records that a batch is run, after this wait of its first call.
    pub(crate) fn due(&self, waited: Duration) {
        self.wait.record(waited);
    }

    /// Records one run.
    pub(crate) fn runs(&self, calls: usize, rows: usize) {
        #[allow(clippy::cast_precision_loss)]
        for (histogram, count) in [(&self.calls, calls), (&self.rows, rows)] {
            histogram.record(count as f64);
        }
    }

    /// Counts a refused call.
    pub(crate) fn refused(&self, full: Full) {
        match full {
            Full::Calls => self.refused_for_calls.increment(1),
            Full::Bytes => self.refused_for_bytes.increment(1),
        }
    }

    /// Counts a run that is made again in parts.
    pub(crate) fn divided(&self) {
        self.divisions.increment(1);
    }

    /// Counts a call that is not joined with others.
    pub(crate) fn alone(&self) {
        self.alone.increment(1);
    }
}
