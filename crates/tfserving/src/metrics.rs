//! The metrics of this crate.

use metrics::Counter;
use outrigger_core::{EngineId, Metric, MetricKind};
use outrigger_rpc::metrics::{CallMetrics, begin};

use crate::ReloadError;

const BATCH_RETRIES: &str = "outrigger_engine_batch_retries_total";

/// The outcome labels of retries.
const OK: &str = "ok";
const FAILED: &str = "failed";

/// Every metric of this module.
pub const METRICS: &[Metric] = &[Metric {
    name: BATCH_RETRIES,
    kind: MetricKind::Counter,
    labels: &["engine", "outcome"],
    help: "Predictions that were sent to an engine that batches requests once more, because \
               they may have failed due to another request in their batch, by outcome (ok, failed).",
}];

/// The metrics of all calls.
#[derive(Debug)]
pub(crate) struct Metrics {
    engine: EngineId,
    pub(crate) predict: CallMetrics,
    pub(crate) signature: CallMetrics,
    pub(crate) status: CallMetrics,
    pub(crate) reload: CallMetrics,
}

impl Metrics {
    /// Registers every series at zero, so that rate() sees the first increment.
    pub(crate) fn new(engine: &EngineId) -> Self {
        begin(engine);
        for outcome in [OK, FAILED] {
            batch_retries(engine, outcome).absolute(0);
        }
        Self {
            engine: engine.clone(),
            predict: CallMetrics::of(engine, "predict"),
            signature: CallMetrics::of(engine, "signature"),
            status: CallMetrics::of(engine, "status"),
            reload: CallMetrics::of(engine, "reload"),
        }
    }

    /// Counts a call that was made again after a failure of its batch.
    pub(crate) fn batch_retried(&self, is_ok: bool) {
        batch_retries(&self.engine, if is_ok { OK } else { FAILED }).increment(1);
    }
}

fn batch_retries(engine: &EngineId, outcome: &'static str) -> Counter {
    metrics::counter!(BATCH_RETRIES, "engine" => engine.to_string(), "outcome" => outcome)
}

/// The outcome label of a failed reload.
pub(crate) fn reload_outcome(error: &ReloadError) -> &'static str {
    match error {
        ReloadError::Timeout => "deadline",
        ReloadError::Refused { .. } => FAILED,
        ReloadError::Unavailable(error) => error.outcome(),
    }
}
