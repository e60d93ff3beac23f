//! Metrics of this crate.

use outrigger_core::{Metric, MetricKind};

use crate::Error;

const PULLS: &str = "outrigger_pulls_total";
const PULL_BYTES: &str = "outrigger_pull_bytes_total";
const PUSHES: &str = "outrigger_pushes_total";
const RETRIES: &str = "outrigger_registry_retries_total";

/// The label value for success.
const OK: &str = "ok";

/// All metrics of this crate.
pub const METRICS: &[Metric] = &[
    Metric {
        name: PULLS,
        kind: MetricKind::Counter,
        labels: &["operation", "outcome"],
        help: "Reads from registries and layout directories: resolve (tag to digest), image \
            (manifest and configuration) and blob (one layer), by outcome.",
    },
    Metric {
        name: PULL_BYTES,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Bytes of layers received, those of broken transfers included.",
    },
    Metric {
        name: PUSHES,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Images pushed, by outcome.",
    },
    Metric {
        name: RETRIES,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Registry calls that were repeated after the registry was unavailable or a \
               connection broke.",
    },
];

/// Registers every counter at zero, so that it is exposed before the first event and `rate()` sees
/// the first increment.
pub(crate) fn register() {
    for operation in ["resolve", "image", "blob"] {
        metrics::counter!(PULLS, "operation" => operation, "outcome" => OK).absolute(0);
    }
    metrics::counter!(PUSHES, "outcome" => OK).absolute(0);
    for counter in [PULL_BYTES, RETRIES] {
        metrics::counter!(counter).absolute(0);
    }
}

fn outcome<T>(result: &Result<T, Error>) -> &'static str {
    result.as_ref().map_or_else(Error::outcome, |_| OK)
}

pub(crate) fn pulled<T>(operation: &'static str, result: Result<T, Error>) -> Result<T, Error> {
    let outcome = outcome(&result);
    metrics::counter!(PULLS, "operation" => operation, "outcome" => outcome).increment(1);
    result
}

pub(crate) fn pushed<T>(result: Result<T, Error>) -> Result<T, Error> {
    metrics::counter!(PUSHES, "outcome" => outcome(&result)).increment(1);
    result
}

pub(crate) fn received(bytes: u64) {
    metrics::counter!(PULL_BYTES).increment(bytes);
}

pub(crate) fn retried() {
    metrics::counter!(RETRIES).increment(1);
}
