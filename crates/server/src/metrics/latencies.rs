//! Latencies of predictions under the names of XGBoost Serving, for its listener.

use std::time::Duration;

use outrigger_core::{Metric, MetricKind};
use outrigger_run::StageTimes;

use super::ServedAs;

/// A latency of predictions that an interface has under a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Latency {
    /// A call over gRPC.
    Grpc,
    /// A call over HTTP.
    Http,
    /// A run of trees.
    Trees,
    /// The machine in a run of trees with a factorisation machine of two classes.
    Machine,
    /// The trees in a run of [`Self::Machine`].
    TreesOfMachine,
    /// The machine in a run of trees with a factorisation machine of any number of classes.
    Softmax,
    /// The trees in a run of [`Self::Softmax`].
    TreesOfSoftmax,
}

/// The names under which runs report the time of their trees, and of their machine.
const TREES: &str = "trees";
const MACHINE: &str = "machine";

/// Buckets in microseconds, from those of a small model's run to those of a slow call.
pub(super) const MICROSECONDS: &[f64] =
    &[10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7];

/// The metrics.
pub(super) const METRICS: &[Metric] = &[
    histogram(
        Latency::Grpc,
        "Time of a prediction on server.xgboost_serving over gRPC, answered or failed, in \
         microseconds.",
    ),
    histogram(
        Latency::Http,
        "Time of a prediction on server.xgboost_serving over HTTP, answered or failed, in \
         microseconds.",
    ),
    histogram(
        Latency::Trees,
        "Time of the trees in a model's run for Predict on server.xgboost_serving, without the wait for \
         a thread, in microseconds; the sum over the parts of a divided call.",
    ),
    histogram(
        Latency::Machine,
        "Time of the machine in a model's run for PredictAlphafm on server.xgboost_serving, without \
         the wait for a thread, in microseconds; the sum over the parts of a divided call.",
    ),
    histogram(
        Latency::TreesOfMachine,
        "Time of the trees in a model's run for PredictAlphafm on server.xgboost_serving, to find \
         the leaves of the rows, in microseconds; the sum over the parts of a divided call.",
    ),
    histogram(
        Latency::Softmax,
        "Time of the machine in a model's run for PredictAlphafmSoftmax on server.xgboost_serving, \
         without the wait for a thread, in microseconds; the sum over the parts of a divided call.",
    ),
    histogram(
        Latency::TreesOfSoftmax,
        "Time of the trees in a model's run for PredictAlphafmSoftmax on server.xgboost_serving, to \
         find the leaves of the rows, in microseconds; the sum over the parts of a divided call.",
    ),
];

const fn histogram(latency: Latency, help: &'static str) -> Metric {
    Metric { name: latency.name(), kind: MetricKind::Histogram, labels: &["model"], help }
}

impl Latency {
    const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "xgboost_serving",
            Self::Http => "http_xgboost_serving",
            Self::Trees => "xgboost_predict",
            Self::Machine => "alphafm_predict",
            Self::TreesOfMachine => "alphafm_xgboost_predict",
            Self::Softmax => "alphafm_softmax_predict",
            Self::TreesOfSoftmax => "alphafm_softmax_xgboost_predict",
        }
    }

    /// The latency of the trees in a run, if it has a metric of its own.
    const fn of_trees(self) -> Option<Self> {
        match self {
            Self::Machine => Some(Self::TreesOfMachine),
            Self::Softmax => Some(Self::TreesOfSoftmax),
            _ => None,
        }
    }

    /// Records the times of a run's stages that have metrics; that of the whole run, `took`, for a
    /// model that has reported none.
    pub(crate) fn record_run(self, by: &ServedAs, took: Duration, stages: &StageTimes) {
        let own = if self.of_trees().is_some() { MACHINE } else { TREES };
        self.record(by, stages.get(own).unwrap_or(took));
        if let (Some(metric), Some(took)) = (self.of_trees(), stages.get(TREES)) {
            metric.record(by, took);
        }
    }

    /// Records the latency of a prediction.
    pub(crate) fn record(self, by: &ServedAs, took: Duration) {
        let micros = took.as_secs_f64() * 1e6;
        metrics::histogram!(self.name(), "model" => by.model.text()).record(micros);
    }
}
