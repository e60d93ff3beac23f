//! What a run has shown.

mod problem;
mod settings;
mod text;

use std::{collections::BTreeMap, ops::Not};

use hdrhistogram::Histogram;
use serde::Serialize;

pub use self::settings::Settings;
use crate::{Job, measure::Measured, prepare::Prepared, worker::Pace};

/// The outcome of a run. As JSON it is what `outrigger bench -o json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// `rate`, `max` or `find-rate`.
    pub mode: &'static str,
    /// `kv`, `columnar`, `json`, or `direct` for TensorFlow Serving itself.
    pub form: &'static str,
    /// What it was told to be.
    pub settings: Settings,
    /// How long was measured, without the warm-up.
    pub duration_seconds: f64,
    /// Requests due a second; none in a closed loop, or where no rate was found: all that
    /// is measured is then of the last step.
    pub offered_rate: Option<f64>,
    /// Requests that count: due within the measured time, in a closed loop
    /// over within it.
    pub requests: u64,
    /// Those that were answered.
    pub ok: u64,
    /// Answers a second that came within the measured time.
    pub throughput: f64,
    /// Requests that failed, by reason.
    pub errors: BTreeMap<String, u64>,
    /// What the first failure of each reason said.
    pub error_messages: BTreeMap<String, String>,
    /// Of the requests that were answered, from when they were due; none if none was.
    pub latency_ms: Option<Quantiles>,
    /// How late the client itself was: from when a request was due to when it was
    /// handed to a connection. Part of the latency. None if none was sent.
    pub send_delay_ms: Option<Quantiles>,
    /// CPU time, user and system, by process; `client` is the load generator. None of
    /// a process that has ended meanwhile, and of all if no request was over.
    pub cpu_seconds_per_request: BTreeMap<String, Option<f64>>,
    /// The mean size of a request's body.
    pub request_bytes: f64,
    /// The mean size of an answer's message; none if there was none.
    pub response_bytes: Option<f64>,
    /// Treatments a user; none where requests differ.
    pub treatments: Option<usize>,
    /// Users a request.
    pub users: usize,
    /// Processes that have ended during the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended_processes: Vec<String>,
    /// Whether it was stopped before its time.
    #[serde(skip_serializing_if = "Not::not")]
    pub interrupted: bool,
    /// How the rate was found; none where it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Why the search for a rate did not get to its end.
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
    /// What it was for.
    pub phase: Phase,
    /// Requests due a second; none in a closed loop.
    pub offered_rate: Option<f64>,
    /// How long was measured.
    pub duration_seconds: f64,
    /// Answers a second.
    pub throughput: f64,
    /// The 99th percentile of the latency; none if no request was answered.
    pub p99_ms: Option<f64>,
    /// Requests that failed, by reason.
    pub errors: BTreeMap<String, u64>,
    /// Whether the rate was held.
    pub held: bool,
}

/// What a step of a search is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// A closed loop tells where to begin.
    Estimate,
    /// Comes nearer to the rate.
    Search,
    /// Is as long as was asked for.
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
    /// Those of what was recorded, if anything was.
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
