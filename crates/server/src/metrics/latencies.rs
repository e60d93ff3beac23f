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
    /// A run of trees with a factorisation machine of two classes.
    Machine,
    /// The trees in a run of [`Self::Machine`].
    TreesOfMachine,
    /// A run of trees with a factorisation machine of any number of classes.
    Softmax,
    /// The trees in a run of [`Self::Softmax`].
    TreesOfSoftmax,
}

/// The name under which runs of trees with a factorisation machine report the time of their trees.
const TREES: &str = "trees";

/// Buckets in microseconds, from those of a small model's run to those of a slow call.
pub(super) const MICROSECONDS: &[f64] =
    &[10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7];

/// The metrics.
pub(super) const METRICS: &[Metric] = &[
    histogram(
        Latency::Grpc,
        "Time of an answered prediction on server.xgboost_serving over gRPC, in microseconds.",
    ),
    histogram(
        Latency::Http,
        "Time of an answered prediction on server.xgboost_serving over HTTP, in microseconds.",
    ),
    histogram(
        Latency::Trees,
        "Time of a model's run for Predict on server.xgboost_serving, in microseconds.",
    ),
    histogram(
        Latency::Machine,
        "Time of a model's run for PredictAlphafm on server.xgboost_serving, trees and machine, in \
         microseconds.",
    ),
    histogram(
        Latency::TreesOfMachine,
        "Time of the trees in a model's run for PredictAlphafm on server.xgboost_serving, to find \
         the leaves of the rows, in microseconds; the sum over the parts of a divided call.",
    ),
    histogram(
        Latency::Softmax,
        "Time of a model's run for PredictAlphafmSoftmax on server.xgboost_serving, trees and \
         machine, in microseconds.",
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

    /// The times of a run's stages, before it begins. They are recorded if the trees have a metric.
    pub(crate) fn stages(self) -> StageTimes {
        self.of_trees().map_or_else(StageTimes::default, |_| StageTimes::recorded())
    }

    /// Records the latency of a run, and the time of its trees if the model reported it.
    pub(crate) fn record_run(self, by: &ServedAs, took: Duration, stages: &StageTimes) {
        self.record(by, took);
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
