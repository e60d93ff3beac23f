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

pub(crate) fn count(outcome: Outcome, spans: u64) {
    let outcome = match outcome {
        Outcome::Exported => "exported",
        Outcome::Dropped => "dropped",
        Outcome::Failed => "failed",
    };
    metrics::counter!(SPANS, "outcome" => outcome).increment(spans);
}
