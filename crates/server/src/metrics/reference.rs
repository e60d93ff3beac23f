//! The reference page of all metrics, generated from their declarations.

use std::fmt::Write as _;

use outrigger_core::MetricKind;

const INTRODUCTION: &str = "\
# Metrics

This page is generated from the code: `outrigger serve --print-reference metrics`.

`/metrics` on the health listener shows these in Prometheus' text format. A label `model` holds only
names of models that this process has served: names that callers make up never become labels. Beyond
the first `metrics.max_models` of them, models share the label `other`; gauges are then left out. So
are those with a label `tag` beyond as many tags that have had a canary on trial. A label `arm` is
live, canary, pinned (a digest or a canary's own tag was asked for) or empty.

What is counted is there from the start, at 0, as far as it can be known then. What is told of a model
comes with its first request, of its canaries with their trial, of TLS, tokens and traces where they are
configured; a reason, beyond those that alerts ask for, when it is the first time.

| metric | kind | labels | |
|---|---|---|---|
";

/// The reference page of the metrics, Markdown.
pub fn reference_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for metric in super::all() {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(page, "| `{}` | {kind} | {} | {} |", metric.name, labels.join(" "), metric.help)
            .expect("writing to a string");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let all = crate::metrics::all();
        for pair in all.windows(2) {
            assert_ne!(pair[0].name, pair[1].name);
        }
        for metric in all {
            let name = metric.name;
            // Process metrics have the names that Prometheus defines for all processes.
            let prefixed = ["outrigger_", "process_"].iter().any(|it| name.starts_with(it));
            assert!(prefixed, "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
            assert!(!metric.help.contains(['|', '\n']), "{name} would break the table");
        }
    }
}
