//! Metrics of this crate.

use outrigger_core::{Metric, MetricKind};

const SPANS: &str = "outrigger_trace_spans_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[Metric {
    name: SPANS,
    kind: MetricKind::Counter,
    labels: &["outcome"],
    help: "Recorded spans by outcome: exported (the collector took the \
           message), dropped (no room in the queue) or failed (the collector could not be reached, \
           or refused).",
}];

/// The outcome of a recorded span.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Exported,
    Dropped,
    Failed,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Exported, Self::Dropped, Self::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

/// Registers every counter at zero, so that `rate()` sees the first increment.
pub(crate) fn register() {
    for outcome in Outcome::ALL {
        metrics::counter!(SPANS, "outcome" => outcome.as_str()).absolute(0);
    }
}

pub(crate) fn count(outcome: Outcome, spans: u64) {
    metrics::counter!(SPANS, "outcome" => outcome.as_str()).increment(spans);
}
