//! The reference page of all metrics, generated from their declarations.

use outrigger_console::exposition;

const INTRODUCTION: &str = "\
# Metrics

This page is generated from the code: `outrigger serve --print-reference metrics`.

The metrics of a batch job are on [a page of their own](batch-metrics.md).

`/metrics` on the health listener has these in Prometheus' text format. The label `model` has only
names of models that this process has served: unknown names in requests never become labels. Models
beyond the first `metrics.max_models` share the label `other`, and have no gauges. Likewise, gauges
with a label `tag` are limited to that number of tags with a canary on trial. The label `arm` is
live, canary, pinned (the request named a digest or a canary's tag) or empty.

Counters exist from the start, at 0, if their labels are known then. The series of a model begin with
its first request, those of its canaries with their trial, those of TLS, tokens, traces and batchers if
they are configured; the series of a reason, except for those that alerts use, begin with its first failure.

";

/// The reference page of the metrics, Markdown.
pub fn reference_markdown() -> String {
    let rows: String = super::all().iter().map(exposition::row).collect();
    format!("{INTRODUCTION}{}{rows}", exposition::TABLE)
}

#[cfg(test)]
mod tests {
    use outrigger_core::MetricKind;

    use crate::metrics::latencies;

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let all = crate::metrics::all();
        for pair in all.windows(2) {
            assert_ne!(pair[0].name, pair[1].name);
        }
        for metric in all {
            let name = metric.name;
            // Process metrics have the names that Prometheus defines for all processes, and the
            // latencies those of XGBoost Serving.
            let prefixed = ["outrigger_", "process_"].iter().any(|it| name.starts_with(it));
            let is_latency = latencies::METRICS.iter().any(|it| it.name == name);
            assert!(prefixed || is_latency, "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
            assert!(!metric.help.contains(['|', '\n']), "{name} would break the table");
        }
    }
}
