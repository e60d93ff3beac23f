//! The metrics of this crate.

use metrics::{Counter, Gauge, Histogram};
use outrigger_core::{Metric, MetricKind};
use outrigger_rpc::{Endpoint, Observer, TransportError};
use outrigger_run::RunError;
use tokio::time::Instant;

use crate::ReloadError;

const CALLS: &str = "outrigger_engine_calls_total";
const DURATION: &str = "outrigger_engine_call_duration_seconds";
const IN_FLIGHT: &str = "outrigger_engine_calls_in_flight";
const CONNECTS: &str = "outrigger_engine_connects_total";
const LOST: &str = "outrigger_engine_connections_lost_total";
const RETRIES: &str = "outrigger_engine_retries_total";
const OPEN: &str = "outrigger_engine_connections";

/// The outcome label of an answered call, and of a successful attempt to connect.
const OK: &str = "ok";
/// The outcome label of a failed attempt to connect, and of a call that failed in the engine.
const FAILED: &str = "failed";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[
    Metric {
        name: CALLS,
        kind: MetricKind::Counter,
        labels: &["method", "outcome"],
        help: "Calls to the engine that ended, by method (predict, signature, status, reload) and \
               outcome; \"dropped\" are those whose caller disconnected.",
    },
    Metric {
        name: DURATION,
        kind: MetricKind::Histogram,
        labels: &["method"],
        help: "Time from a call to the engine until its answer or failure.",
    },
    Metric {
        name: IN_FLIGHT,
        kind: MetricKind::Gauge,
        labels: &["method"],
        help: "Calls to the engine that have not been answered yet.",
    },
    Metric {
        name: CONNECTS,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Attempts to connect to the engine, by outcome (ok, failed).",
    },
    Metric {
        name: LOST,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Connections to the engine that broke; each is followed by reconnects.",
    },
    Metric {
        name: RETRIES,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Calls to the engine that were repeated because the engine had certainly not begun \
               to process them: the connection broke before any part was sent, or the engine \
               reported it.",
    },
    Metric {
        name: OPEN,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Open connections to the engine.",
    },
];

/// The metrics of all calls.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) predict: Calls,
    pub(crate) signature: Calls,
    pub(crate) status: Calls,
    pub(crate) reload: Calls,
}

impl Metrics {
    /// Registers every series at zero, so that rate() sees the first increment.
    pub(crate) fn new() -> Self {
        for outcome in [OK, FAILED] {
            metrics::counter!(CONNECTS, "outcome" => outcome).absolute(0);
        }
        for counter in [LOST, RETRIES] {
            metrics::counter!(counter).absolute(0);
        }
        metrics::gauge!(OPEN).increment(0.0);
        Self {
            predict: Calls::of("predict"),
            signature: Calls::of("signature"),
            status: Calls::of("status"),
            reload: Calls::of("reload"),
        }
    }
}

/// The metrics of one method, looked up once for all its calls.
#[derive(Debug)]
pub(crate) struct Calls {
    method: &'static str,
    in_flight: Gauge,
    duration: Histogram,
    ok: Counter,
}

impl Calls {
    fn of(method: &'static str) -> Self {
        Self {
            method,
            in_flight: metrics::gauge!(IN_FLIGHT, "method" => method),
            duration: metrics::histogram!(DURATION, "method" => method),
            ok: ended(method, OK),
        }
    }

    pub(crate) fn start(&self) -> Observed<'_> {
        self.in_flight.increment(1.0);
        Observed { calls: self, start: Instant::now(), outcome: "dropped" }
    }
}

fn ended(method: &'static str, outcome: &'static str) -> Counter {
    metrics::counter!(CALLS, "method" => method, "outcome" => outcome)
}

/// The outcome label of a failed call.
pub(crate) fn outcome(error: &RunError) -> &'static str {
    match error {
        RunError::Unavailable(_) | RunError::NotReady { .. } => "unavailable",
        RunError::Overloaded => "shed",
        RunError::EngineOverloaded { .. } => "overloaded",
        RunError::DeadlineExceeded => "deadline",
        RunError::Cancelled { .. } => "cancelled",
        RunError::NotServed { .. } => "not_served",
        RunError::TooLarge { .. } => "too_large",
        RunError::Answer { .. } => "invalid_answer",
        _ => FAILED,
    }
}

/// The outcome label of a failed reload.
pub(crate) fn reload_outcome(error: &ReloadError) -> &'static str {
    match error {
        ReloadError::Timeout => "deadline",
        ReloadError::Refused { .. } => FAILED,
        ReloadError::Unavailable(error) => outcome(error),
    }
}

/// A call in flight. It is counted once, even if its future is dropped.
pub(crate) struct Observed<'a> {
    calls: &'a Calls,
    start: Instant,
    outcome: &'static str,
}

impl Observed<'_> {
    /// Records the result of the call.
    pub(crate) fn end<T, E>(
        mut self,
        result: Result<T, E>,
        outcome: fn(&E) -> &'static str,
    ) -> Result<T, E> {
        self.outcome = result.as_ref().map_or_else(outcome, |_| OK);
        result
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        let Calls { method, in_flight, duration, ok } = self.calls;
        in_flight.decrement(1.0);
        match self.outcome {
            OK => ok.increment(1),
            outcome => ended(method, outcome).increment(1),
        }
        duration.record(self.start.elapsed());
    }
}

/// Counts and logs events of the connections.
#[derive(Debug)]
pub(crate) struct Connections {
    endpoint: Endpoint,
}

impl Connections {
    pub(crate) fn to(endpoint: &Endpoint) -> Self {
        Self { endpoint: endpoint.clone() }
    }
}

impl Observer for Connections {
    fn opened(&self) {
        metrics::counter!(CONNECTS, "outcome" => OK).increment(1);
        metrics::gauge!(OPEN).increment(1.0);
        tracing::debug!(engine.endpoint = %self.endpoint, "connected to the engine");
    }

    fn closed(&self) {
        metrics::gauge!(OPEN).decrement(1.0);
        metrics::counter!(LOST).increment(1);
    }

    fn lost(&self, error: &TransportError) {
        tracing::warn!(engine.endpoint = %self.endpoint, error = %error, "lost the engine");
    }

    fn failed(&self, error: &TransportError) {
        metrics::counter!(CONNECTS, "outcome" => FAILED).increment(1);
        tracing::debug!(engine.endpoint = %self.endpoint, error = %error, "cannot connect");
    }

    fn retried(&self) {
        metrics::counter!(RETRIES).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_their_unit_and_stand_once() {
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        for metric in METRICS {
            assert!(metric.name.starts_with("outrigger_engine_"), "{}", metric.name);
            let is_total = metric.name.ends_with("_total");
            assert_eq!(is_total, metric.kind == MetricKind::Counter, "{}", metric.name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
