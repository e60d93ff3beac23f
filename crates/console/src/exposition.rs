//! Metrics as text: series in Prometheus' format, and the rows of the reference pages.

use std::fmt::Write as _;

use outrigger_core::{Metric, MetricKind};

/// The media type of Prometheus' text format.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The head of a table with a row for each metric, Markdown.
pub const TABLE: &str = "| metric | kind | labels | |\n|---|---|---|---|\n";

/// The kind of a metric, as Prometheus calls it.
fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

/// The row of a metric in a reference page, with its line feed.
pub fn row(metric: &Metric) -> String {
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {} | {} | {} |\n", metric.name, kind(metric), labels.join(" "), metric.help)
}

/// Appends the series of a counter or gauge to `text`; nothing if there are none. Each series has the
/// values of the metric's labels, in their order.
pub fn family<const N: usize>(
    text: &mut String,
    metric: &Metric,
    series: impl IntoIterator<Item = ([String; N], f64)>,
) {
    let mut series = series.into_iter().peekable();
    if series.peek().is_none() {
        return;
    }
    let Metric { name, labels, help, .. } = metric;
    let kind = kind(metric);
    write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n").expect("writing to a string");
    for (values, value) in series {
        let pair = |(label, value): (&&str, &String)| format!("{label}=\"{}\"", escaped(value));
        let pairs: Vec<_> = labels.iter().zip(&values).map(pair).collect();
        let labels =
            if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        writeln!(text, "{name}{labels} {value}").expect("writing to a string");
    }
    text.push('\n');
}

/// The value of a label with the escapes of the text format.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRIC: Metric = Metric {
        name: "outrigger_calls_total",
        kind: MetricKind::Counter,
        labels: &["host", "end"],
        help: "Calls.",
    };

    #[test]
    fn series_have_their_labels_with_escapes() {
        let mut text = String::new();
        let series = [(["a\"b\\\n".to_owned(), "ok".to_owned()], 2.0)];
        family(&mut text, &METRIC, series);
        let lines: Vec<_> = text.lines().collect();
        let expected = [
            "# HELP outrigger_calls_total Calls.",
            "# TYPE outrigger_calls_total counter",
            r#"outrigger_calls_total{host="a\"b\\\n",end="ok"} 2"#,
            "",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_metric_without_series_is_left_out() {
        let mut text = String::new();
        family::<2>(&mut text, &METRIC, []);
        assert_eq!(text, "");
    }

    #[test]
    fn a_metric_has_a_row_in_the_reference() {
        assert_eq!(row(&METRIC), "| `outrigger_calls_total` | counter | `host` `end` | Calls. |\n");
    }
}
