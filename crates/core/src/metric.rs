//! Declarations of metrics, from which both the exposition and the reference page are made.

/// The kind of series of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; the name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A metric's declaration. Each crate lists its own in `metrics.rs`.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Full name, `outrigger_…`, with its base unit: `_seconds`, `_bytes`.
    pub name: &'static str,
    /// The kind of series.
    pub kind: MetricKind,
    /// Names of its labels, in the order they are set.
    pub labels: &'static [&'static str],
    /// One sentence for the reference page.
    pub help: &'static str,
}
