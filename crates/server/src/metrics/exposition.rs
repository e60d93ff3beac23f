//! The recorder behind `/metrics`.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use outrigger_core::MetricKind;
use outrigger_lifecycle::Snapshot;

use super::latencies;

/// Buckets from half a millisecond to two minutes: a score takes milliseconds, a pull takes
/// minutes.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    120.0,
];
const BYTES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
/// Buckets for scores of any scale. They distinguish probabilities best, and other scores by sign
/// and order of magnitude.
const SCORES: &[f64] = &[
    -1e6, -1e4, -1e3, -100.0, -10.0, -1.0, -0.1, -0.01, 0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 100.0, 1e3, 1e4, 1e6,
];
const COUNTS: &[f64] =
    &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];

/// The exposition of this process's metrics. Clones share it.
#[derive(Clone)]
pub(crate) struct Exposition {
    handle: PrometheusHandle,
}

/// An error in the setup of the metrics recorder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A histogram's buckets are invalid.
    #[error("the metrics recorder could not be made")]
    Build(#[from] metrics_exporter_prometheus::BuildError),
    /// The process has another recorder already.
    #[error("the process has a metrics recorder already")]
    Taken,
}

impl Exposition {
    /// Returns the process's exposition; the first call installs it.
    pub(crate) fn install() -> Result<Self, Error> {
        static INSTALLED: OnceLock<Exposition> = OnceLock::new();
        static INSTALLING: Mutex<()> = Mutex::new(());
        let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = INSTALLED.get() {
            return Ok(installed.clone());
        }
        let recorder = builder()?.build_recorder();
        let exposition = Self { handle: recorder.handle() };
        metrics::set_global_recorder(recorder).map_err(|_| Error::Taken)?;
        describe();
        Ok(INSTALLED.get_or_init(|| exposition).clone())
    }

    /// Renders all metrics in Prometheus' text format, including those that are gathered only on
    /// request.
    pub(crate) fn render(&self, snapshot: &Snapshot) -> String {
        self.handle.render() + &super::gathered::render(snapshot)
    }

    /// Writes the recorded metrics in Prometheus' text format without holding the whole text in
    /// memory.
    pub(crate) fn write(&self, mut to: &mut dyn io::Write) -> io::Result<()> {
        self.handle.render_to_write(&mut to)
    }

    /// Moves recorded values into histograms. Without this they would pile up between scrapes.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

fn builder() -> Result<PrometheusBuilder, Error> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .set_buckets_for_metric(Matcher::Full(super::SCORES.to_owned()), SCORES)?
        .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), BYTES)?
        .set_buckets(COUNTS)?;
    latencies::METRICS.iter().try_fold(builder, |builder, metric| {
        let name = Matcher::Full(metric.name.to_owned());
        Ok(builder.set_buckets_for_metric(name, latencies::MICROSECONDS)?)
    })
}

fn describe() {
    for metric in super::all() {
        match metric.kind {
            MetricKind::Counter => metrics::describe_counter!(metric.name, metric.help),
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            MetricKind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}
