//! The metrics of an engine that is a TensorFlow Serving.

use outrigger_core::{EngineId, Metric, MetricKind, Outcome};

use crate::ReloadError;

const RELOADS: &str = "outrigger_engine_reloads_total";
const EVENTS: &str = "outrigger_engine_events_total";

/// Every metric of this module.
pub const METRICS: &[Metric] = &[
    Metric {
        name: RELOADS,
        kind: MetricKind::Counter,
        labels: &["engine", "outcome"],
        help: "Configurations sent to the engine, by outcome (ok, failed, refused, timeout, lost).",
    },
    Metric {
        name: EVENTS,
        kind: MetricKind::Counter,
        labels: &["engine", "outcome"],
        help: "Events that an engine's machine dropped: stale ones belong to an earlier attempt, \
               unexpected ones are defects.",
    },
];

/// Registers every series at zero, so that rate() sees the first increment.
pub(super) fn begin(engine: &EngineId) {
    for outcome in ["ok", "failed", "refused", "timeout", "lost"] {
        reloads(engine, outcome).absolute(0);
    }
    for outcome in [Outcome::Stale, Outcome::Unexpected] {
        events(engine, outcome).absolute(0);
    }
}

/// Counts a reload.
pub(super) fn reloaded(engine: &EngineId, result: &Result<(), ReloadError>) {
    let outcome = match result {
        Ok(()) => "ok",
        Err(error) if error.was_applied() => "failed",
        Err(ReloadError::Refused { .. }) => "refused",
        Err(ReloadError::Timeout) => "timeout",
        Err(ReloadError::Unavailable(_)) => "lost",
    };
    reloads(engine, outcome).increment(1);
}

/// Counts an event that the machine did not handle.
pub(super) fn event(engine: &EngineId, outcome: Outcome) {
    if outcome != Outcome::Handled {
        events(engine, outcome).increment(1);
    }
}

fn reloads(engine: &EngineId, outcome: &'static str) -> metrics::Counter {
    metrics::counter!(RELOADS, "engine" => engine.to_string(), "outcome" => outcome)
}

fn events(engine: &EngineId, outcome: Outcome) -> metrics::Counter {
    metrics::counter!(EVENTS, "engine" => engine.to_string(), "outcome" => outcome.as_str())
}
