//! The report of a run.

mod problem;
mod settings;
mod text;

use std::{collections::BTreeMap, ops::Not};

use hdrhistogram::Histogram;
use serde::Serialize;

pub use self::settings::Settings;
use crate::{Job, measure::Measured, prepare::Prepared, worker::Pace};

/// The outcome of a run; serialised, it is the output of `outrigger bench -o json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// `rate`, `max` or `find-rate`.
    pub mode: &'static str,
    /// `kv`, `columnar`, `json`; `oip-grpc`, `oip-binary` or `oip-json`; or `direct` for TensorFlow
    /// Serving itself.
    pub form: &'static str,
    /// The run's settings.
    pub settings: Settings,
    /// Duration of the measurement, without the warm-up.
    pub duration_seconds: f64,
    /// Requests due per second; `None` in a closed loop, or if no rate was found. In the
    /// latter case all figures are those of the last step.
    pub offered_rate: Option<f64>,
    /// Counted requests: in an open loop those that were due within the measured time, in
    /// a closed loop those that ended within it.
    pub requests: u64,
    /// Answered requests.
    pub ok: u64,
    /// Answers per second within the measured time.
    pub throughput: f64,
    /// Failed requests by reason.
    pub errors: BTreeMap<String, u64>,
    /// The message of the first failure of each reason.
    pub error_messages: BTreeMap<String, String>,
    /// Latency of answered requests, from their due times; `None` without answers.
    pub latency_ms: Option<Quantiles>,
    /// The client's own delay: from a request's due time until it is passed to a
    /// connection. It is part of the latency. `None` if no request was sent.
    pub send_delay_ms: Option<Quantiles>,
    /// CPU time (user and system) by process; `client` is the load generator. `None` for
    /// a process that has ended, and for all processes if no request has ended.
    pub cpu_seconds_per_request: BTreeMap<String, Option<f64>>,
    /// Mean size of the requests' bodies.
    pub request_bytes: f64,
    /// Mean size of the answers' messages; `None` without answers.
    pub response_bytes: Option<f64>,
    /// Treatments per user; `None` if requests differ.
    pub treatments: Option<usize>,
    /// Users per request.
    pub users: usize,
    /// Processes that ended during the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended_processes: Vec<String>,
    /// Whether the run was stopped early.
    #[serde(skip_serializing_if = "Not::not")]
    pub interrupted: bool,
    /// The steps of the search for the rate; empty if the rate was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The error that ended the search early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<String>,
}

/// A distribution in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Quantiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
    pub max: f64,
    pub mean: f64,
}

/// One measurement of a search for a rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// The step's purpose.
    pub phase: Phase,
    /// Requests due per second; `None` in a closed loop.
    pub offered_rate: Option<f64>,
    /// Duration of the measurement.
    pub duration_seconds: f64,
    /// Answers per second.
    pub throughput: f64,
    /// The latency's 99th percentile; `None` without answers.
    pub p99_ms: Option<f64>,
    /// Failed requests by reason.
    pub errors: BTreeMap<String, u64>,
    /// Whether the rate was held.
    pub held: bool,
}

/// The purpose of a step in a search for a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// A closed loop whose throughput is the start of the search.
    Estimate,
    /// A trial that narrows the bounds of the rate.
    Search,
    /// A trial of the full duration.
    Confirm,
}

impl Report {
    pub(crate) fn new(
        job: &Job,
        offered_rate: Option<f64>,
        prepared: &Prepared,
        measured: Measured,
    ) -> Self {
        let (throughput, errors) = (measured.throughput(), measured.tally.errors());
        let Measured { tally, duration, cpu_seconds_per_request, .. } = measured;
        let sizes: usize = prepared.messages.iter().map(|message| message.body.len()).sum();
        let failures = tally.failures.into_iter();
        Self {
            mode: job.load.as_str(),
            form: prepared.form,
            settings: Settings::new(job, prepared.form),
            duration_seconds: duration.as_secs_f64(),
            offered_rate,
            requests: tally.ok + errors.values().sum::<u64>(),
            ok: tally.ok,
            throughput,
            errors,
            error_messages: failures.map(|(reason, failed)| (reason, failed.message)).collect(),
            latency_ms: Quantiles::of(&tally.latency),
            send_delay_ms: Quantiles::of(&tally.delay),
            cpu_seconds_per_request,
            request_bytes: sizes as f64 / prepared.messages.len().max(1) as f64,
            response_bytes: (tally.ok > 0).then(|| tally.response_bytes as f64 / tally.ok as f64),
            treatments: prepared.treatments,
            users: prepared.users,
            ended_processes: measured.ended_processes,
            interrupted: measured.interrupted,
            steps: Vec::new(),
            abandoned: None,
        }
    }
}

impl Step {
    pub(crate) fn new(phase: Phase, pace: Pace, measured: &Measured, held: bool) -> Self {
        Self {
            phase,
            offered_rate: pace.rate(),
            duration_seconds: measured.duration.as_secs_f64(),
            throughput: measured.throughput(),
            p99_ms: Quantiles::of(&measured.tally.latency).map(|latency| latency.p99),
            errors: measured.tally.errors(),
            held,
        }
    }
}

impl Quantiles {
    /// The quantiles of the recorded values; `None` if there are none.
    fn of(nanoseconds: &Histogram<u64>) -> Option<Self> {
        let millis = |value: f64| value / 1e6;
        let quantile = |q| millis(nanoseconds.value_at_quantile(q) as f64);
        (!nanoseconds.is_empty()).then(|| Self {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: millis(nanoseconds.max() as f64),
            mean: millis(nanoseconds.mean()),
        })
    }
}
