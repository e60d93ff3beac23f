//! What this crate counts.

use outrigger_core::{Metric, MetricKind};

const SPANS: &str = "outrigger_trace_spans_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[Metric {
    name: SPANS,
    kind: MetricKind::Counter,
    labels: &["outcome"],
    help: "Spans that were recorded, by what became of them: exported, dropped (no room in the \
           queue), failed (the collector could not be reached) or refused (by the collector).",
}];

/// What became of a span.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Exported,
    Dropped,
    Failed,
    Refused,
}

pub(crate) fn count(outcome: Outcome, spans: u64) {
    let outcome = match outcome {
        Outcome::Exported => "exported",
        Outcome::Dropped => "dropped",
        Outcome::Failed => "failed",
        Outcome::Refused => "refused",
    };
    metrics::counter!(SPANS, "outcome" => outcome).increment(spans);
}
