//! What this crate counts.

use outrigger_core::{Metric, MetricKind};

const SPANS: &str = "outrigger_trace_spans_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[Metric {
    name: SPANS,
    kind: MetricKind::Counter,
    labels: &["outcome"],
    help: "Spans that were recorded, by what became of them: exported (the collector took the \
           message), dropped (no room in the queue) or failed (the collector could not be reached, \
           or refused).",
}];

/// What became of a span.
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

/// Makes what is counted begin at 0, so that the first time is a rise.
pub(crate) fn begin() {
    for outcome in Outcome::ALL {
        metrics::counter!(SPANS, "outcome" => outcome.as_str()).absolute(0);
    }
}

pub(crate) fn count(outcome: Outcome, spans: u64) {
    metrics::counter!(SPANS, "outcome" => outcome.as_str()).increment(spans);
}
