//! The metrics of calls to engines in other processes, and of the connections to them.

use metrics::{Counter, Gauge, Histogram};
use outrigger_core::{EngineId, Metric, MetricKind};
use tokio::time::Instant;

use crate::{Endpoint, Observer, TransportError};

const CALLS: &str = "outrigger_engine_calls_total";
const DURATION: &str = "outrigger_engine_call_duration_seconds";
const IN_FLIGHT: &str = "outrigger_engine_calls_in_flight";
const CONNECTS: &str = "outrigger_engine_connects_total";
const LOST: &str = "outrigger_engine_connections_lost_total";
const RETRIES: &str = "outrigger_engine_retries_total";
const OPEN: &str = "outrigger_engine_connections";

/// The outcome label of an answered call, and of a successful attempt to connect.
const OK: &str = "ok";
/// The outcome label of a failed attempt to connect.
const FAILED: &str = "failed";

/// Every metric of this module.
pub const METRICS: &[Metric] = &[
    Metric {
        name: CALLS,
        kind: MetricKind::Counter,
        labels: &["engine", "method", "outcome"],
        help: "Calls to the engine that ended, by method (predict; TensorFlow Serving: signature, \
               status, reload; others: status, load, unload) and outcome; \"dropped\" are those \
               whose caller disconnected.",
    },
    Metric {
        name: DURATION,
        kind: MetricKind::Histogram,
        labels: &["engine", "method"],
        help: "Time from a call to the engine until its answer or failure.",
    },
    Metric {
        name: IN_FLIGHT,
        kind: MetricKind::Gauge,
        labels: &["engine", "method"],
        help: "Calls to the engine that have not been answered yet.",
    },
    Metric {
        name: CONNECTS,
        kind: MetricKind::Counter,
        labels: &["engine", "outcome"],
        help: "Attempts to connect to the engine, by outcome (ok, failed).",
    },
    Metric {
        name: LOST,
        kind: MetricKind::Counter,
        labels: &["engine"],
        help: "Connections to the engine that broke; each is followed by reconnects.",
    },
    Metric {
        name: RETRIES,
        kind: MetricKind::Counter,
        labels: &["engine"],
        help: "Calls to the engine that were repeated because the engine had certainly not begun \
               to process them: the connection broke before any part was sent, or the engine \
               reported it.",
    },
    Metric {
        name: OPEN,
        kind: MetricKind::Gauge,
        labels: &["engine"],
        help: "Open connections to the engine.",
    },
];

/// Registers the series of the connections to `engine` at zero, so that rate() sees the first
/// increment.
pub fn begin(engine: &EngineId) {
    for outcome in [OK, FAILED] {
        connects(engine, outcome).absolute(0);
    }
    for name in [LOST, RETRIES] {
        counter(name, engine).absolute(0);
    }
    open(engine).increment(0.0);
}

/// The metrics of one method, looked up once for all its calls.
#[derive(Debug)]
pub struct CallMetrics {
    engine: EngineId,
    method: &'static str,
    in_flight: Gauge,
    duration: Histogram,
    ok: Counter,
}

impl CallMetrics {
    /// The metrics of the calls of `method` to `engine`.
    pub fn of(engine: &EngineId, method: &'static str) -> Self {
        let labels = [("engine", engine.to_string()), ("method", method.to_owned())];
        Self {
            engine: engine.clone(),
            method,
            in_flight: metrics::gauge!(IN_FLIGHT, &labels),
            duration: metrics::histogram!(DURATION, &labels),
            ok: ended(engine, method, OK),
        }
    }

    /// Begins to observe a call.
    pub fn start(&self) -> Observed<'_> {
        self.in_flight.increment(1.0);
        Observed { calls: self, start: Instant::now(), outcome: "dropped" }
    }
}

fn ended(engine: &EngineId, method: &'static str, outcome: &'static str) -> Counter {
    let engine = engine.to_string();
    metrics::counter!(CALLS, "engine" => engine, "method" => method, "outcome" => outcome)
}

fn connects(engine: &EngineId, outcome: &'static str) -> Counter {
    metrics::counter!(CONNECTS, "engine" => engine.to_string(), "outcome" => outcome)
}

fn counter(name: &'static str, engine: &EngineId) -> Counter {
    metrics::counter!(name, "engine" => engine.to_string())
}

fn open(engine: &EngineId) -> Gauge {
    metrics::gauge!(OPEN, "engine" => engine.to_string())
}

/// A call in flight. It is counted once, even if its future is dropped.
#[derive(Debug)]
pub struct Observed<'a> {
    calls: &'a CallMetrics,
    start: Instant,
    outcome: &'static str,
}

impl Observed<'_> {
    /// Records the result of the call; `outcome` labels a failure.
    pub fn end<T, E>(
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
        let CallMetrics { engine, method, in_flight, duration, ok } = self.calls;
        in_flight.decrement(1.0);
        match self.outcome {
            OK => ok.increment(1),
            outcome => ended(engine, method, outcome).increment(1),
        }
        duration.record(self.start.elapsed());
    }
}

/// Counts and logs events of the connections.
#[derive(Debug)]
pub struct Connections {
    engine: EngineId,
    endpoint: Endpoint,
}

impl Connections {
    /// Observes the connections to `engine` at `endpoint`.
    pub fn to(engine: &EngineId, endpoint: &Endpoint) -> Self {
        Self { engine: engine.clone(), endpoint: endpoint.clone() }
    }
}

impl Observer for Connections {
    fn opened(&self) {
        connects(&self.engine, OK).increment(1);
        open(&self.engine).increment(1.0);
        tracing::debug!(engine = %self.engine, engine.endpoint = %self.endpoint, "connected to the engine");
    }

    fn closed(&self) {
        open(&self.engine).decrement(1.0);
        counter(LOST, &self.engine).increment(1);
    }

    fn lost(&self, error: &TransportError) {
        tracing::warn!(engine = %self.engine, engine.endpoint = %self.endpoint, error = %error, "lost the engine");
    }

    fn failed(&self, error: &TransportError) {
        connects(&self.engine, FAILED).increment(1);
        tracing::debug!(engine = %self.engine, engine.endpoint = %self.endpoint, error = %error, "cannot connect");
    }

    fn retried(&self) {
        counter(RETRIES, &self.engine).increment(1);
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
