//! The metrics of the request path, and the exposition of all crates' metrics.

mod connections;
mod exposition;
mod gathered;
mod labels;
mod latencies;
mod limit;
mod recorders;
mod reference;
mod waits;

use std::{sync::LazyLock, time::Duration};

use metrics::Gauge;
use outrigger_core::{Metric, MetricKind};
use outrigger_features::FeatureCounts;

pub(crate) use self::{
    connections::{
        Ending, connection, connection_ended, handshake_failed, listener_begins, unread,
    },
    exposition::Exposition,
    labels::{ServedAs, model_label},
    latencies::Latency,
    limit::{Limit, refused},
    waits::{WaitsFor, waiting},
};
pub use self::{exposition::Error as ExpositionError, reference::reference_markdown};

use crate::front::{Front, Method};

const REQUESTS: &str = "outrigger_requests_total";
const REQUEST_SECONDS: &str = "outrigger_request_duration_seconds";
const STAGE_SECONDS: &str = "outrigger_request_stage_duration_seconds";
const IN_FLIGHT: &str = "outrigger_requests_in_flight";
const WAITING: &str = "outrigger_requests_waiting";
const TREATMENTS: &str = "outrigger_request_treatments";
const USERS: &str = "outrigger_request_users";
const FEATURES: &str = "outrigger_request_features_total";
const REFUSED: &str = "outrigger_requests_refused_total";
const PANICS: &str = "outrigger_request_panics_total";
const CONNECTIONS: &str = "outrigger_connections";
const ENDED: &str = "outrigger_connections_ended_total";
const HANDSHAKES: &str = "outrigger_tls_handshake_failures_total";
const UNREAD: &str = "outrigger_connections_unread_total";
const EXPIRY: &str = "outrigger_tls_certificate_expiry_timestamp_seconds";
const SECRETS: &str = "outrigger_secret_reloads_total";
const RELOADS: &str = "outrigger_config_reloads_total";
const RELOADED: &str = "outrigger_config_last_reload_successful";
const STAND_INS: &str = "outrigger_canary_stand_ins_total";
const READY: &str = "outrigger_ready";
const SCORES: &str = "outrigger_request_score";
const BUILD: &str = "outrigger_build_info";
const VALIDATIONS: &str = "outrigger_validations_total";
const VALIDATED: &str = "outrigger_validation_rows_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[
    Metric {
        name: REQUESTS,
        kind: MetricKind::Counter,
        labels: &["surface", "method", "model", "arm", "reason"],
        help: "Requests that ended, by surface (grpc, http, xgboost_serving_grpc, \
               xgboost_serving_http, oip_grpc, oip_http), method, the model and arm that \
               answered (empty if none did; for users on both arms, that of one of them), and \
               reason: OK, a name from errors.md, or CANCELLED if the caller disconnected.",
    },
    Metric {
        name: REQUEST_SECONDS,
        kind: MetricKind::Histogram,
        labels: &["method", "model", "arm"],
        help: "Time from a request's headers until its answer.",
    },
    Metric {
        name: STAGE_SECONDS,
        kind: MetricKind::Histogram,
        labels: &["stage", "model", "arm"],
        help: "Time of a prediction in each stage: queue (waiting for its turn and for the model), decode (parts \
               of a request to tensors), engine, encode (scores to answer).",
    },
    Metric {
        name: IN_FLIGHT,
        kind: MetricKind::Gauge,
        labels: &["method"],
        help: "Requests being answered.",
    },
    Metric {
        name: WAITING,
        kind: MetricKind::Gauge,
        labels: &["for"],
        help: "Predictions that wait, by what they wait for: version (a crowded version, \
               limits.per_model), place (server.max_in_flight, limits.per_caller, memory for \
               requests), model (that is being loaded, or whose engine is away) or room (that \
               others leave for those of low priority). The bodies of most that wait for their \
               turn are unread.",
    },
    Metric {
        name: TREATMENTS,
        kind: MetricKind::Histogram,
        labels: &["model", "arm"],
        help: "Scored treatments per user.",
    },
    Metric {
        name: USERS,
        kind: MetricKind::Histogram,
        labels: &["model", "arm"],
        help: "Users per prediction.",
    },
    Metric {
        name: FEATURES,
        kind: MetricKind::Counter,
        labels: &["model", "arm", "kind"],
        help: "Features of predictions that were missing (replaced by a default or NaN), unknown \
               (sent, but not named by the model) or out_of_vocabulary.",
    },
    Metric {
        name: REFUSED,
        kind: MetricKind::Counter,
        labels: &["limit"],
        help: "Requests refused as OVERLOADED before they were worked on, by limit: in_flight \
               (server.max_in_flight), caller (limits.per_caller) and model (limits.per_model), for \
               which it waited until its deadline, waiting (server.max_waiting), \
               unknown_names, deadline (it would have been answered too late), memory (there is \
               no room for one more that waits, or for what one needed that waited until its \
               deadline) or priority (others left no room until its deadline).",
    },
    Metric {
        name: PANICS,
        kind: MetricKind::Counter,
        labels: &["method"],
        help: "Requests answered INTERNAL because their handler panicked; each is a defect.",
    },
    Metric {
        name: CONNECTIONS,
        kind: MetricKind::Gauge,
        labels: &["listener"],
        help: "Open connections of callers, by listener (grpc, http, health, admin, \
               xgboost_serving, oip).",
    },
    Metric {
        name: ENDED,
        kind: MetricKind::Counter,
        labels: &["listener", "cause"],
        help: "Connections that ended for a cause, by listener and cause: places (all were taken, \
               and this was the longest idle one of the peer with the most), flood (HTTP/2 \
               frames that ask for nothing), an error of the peer in HTTP/2 (protocol, \
               flow_control, frame_size, or calm for too much of what costs the \
               server), peer (it reported an error of the server), or http1 (bytes that are no \
               HTTP).",
    },
    Metric {
        name: HANDSHAKES,
        kind: MetricKind::Counter,
        labels: &["listener"],
        help: "TLS handshakes that failed, by listener (grpc, http, health, admin, \
               xgboost_serving, oip): the caller used another protocol, did not trust the \
               certificate, was not trusted, or took too \
               long.",
    },
    Metric {
        name: UNREAD,
        kind: MetricKind::Counter,
        labels: &["listener"],
        help: "Connections that were dropped because their peer did not take an answer within \
               server.send_timeout, by listener (grpc, http, health, admin, \
               xgboost_serving, oip).",
    },
    Metric {
        name: EXPIRY,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Expiry of the listeners' certificate in force, in seconds since 1970. Absent \
               without TLS.",
    },
    Metric {
        name: SECRETS,
        kind: MetricKind::Counter,
        labels: &["secret", "outcome"],
        help: "Detected changes of a secret's files (tls: certificate, key, authorities; tokens; \
               operator: the operator's token), by outcome: ok, or failed if the files were invalid and the previous ones stay in \
               force.",
    },
    Metric {
        name: RELOADS,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Reloads of the configuration, by outcome: ok, unchanged (no setting differs), refused \
               (a setting that needs a restart differs) or invalid (the file cannot be read or \
               used). After the last two the old configuration stays in force.",
    },
    Metric {
        name: RELOADED,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "0 while the configuration in force is not that of the file, because the last reload \
               was refused or invalid; otherwise 1.",
    },
    Metric {
        name: STAND_INS,
        kind: MetricKind::Counter,
        labels: &["model"],
        help: "Requests assigned to a canary that live answered because the canary failed.",
    },
    Metric {
        name: READY,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "1 while /readyz answers \
                                                                       200.",
    },
    Metric {
        name: BUILD,
        kind: MetricKind::Gauge,
        labels: &["version", "revision", "rustc"],
        help: "Always 1; the labels identify the build: its version, the revision of its source \
               if known, and the compiler.",
    },
    Metric {
        name: VALIDATIONS,
        kind: MetricKind::Counter,
        labels: &["reason"],
        help: "Validations of files (ValidateFile) that ended, by reason: OK if there is a report, \
               a name from errors.md, or CANCELLED if the caller disconnected.",
    },
    Metric {
        name: VALIDATED,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Rows of files that were scored or have failed in validations (ValidateFile).",
    },
    Metric {
        name: SCORES,
        kind: MetricKind::Histogram,
        labels: &["model", "arm"],
        help: "Scores, one per prediction: that of a random treatment of one user. The \
               scales of models differ, so the buckets are finest between 0 and 1 and grow by \
               powers of ten beyond, on either side of 0. The sum may fall if scores are \
               negative.",
    },
];

/// The metrics of every crate of the server, by name.
pub fn all() -> Vec<Metric> {
    let crates = [
        METRICS,
        gathered::METRICS,
        outrigger_console::process::METRICS,
        latencies::METRICS,
        outrigger_batcher::metrics::METRICS,
        outrigger_budget::metrics::METRICS,
        outrigger_rpc::metrics::METRICS,
        outrigger_tfserving::metrics::METRICS,
        outrigger_tfserving::engine::metrics::METRICS,
        outrigger_lifecycle::metrics::METRICS,
        outrigger_oci::metrics::METRICS,
        outrigger_store::metrics::METRICS,
        outrigger_trace::metrics::METRICS,
        outrigger_trials::metrics::METRICS,
    ];
    let mut all: Vec<Metric> = crates.into_iter().flatten().copied().collect();
    all.sort_by_key(|metric| metric.name);
    all
}

/// A call that has ended.
pub(crate) struct Ended {
    pub(crate) front: &'static Front,
    pub(crate) method: Method,
    pub(crate) by: ServedAs,
    pub(crate) reason: &'static str,
    pub(crate) took: Duration,
}

/// The reason of a call that did not fail.
pub(crate) const OK: &str = "OK";

/// The reason of a call whose caller went away.
pub(crate) const CANCELLED: &str = "CANCELLED";

/// Counts a validation of a file that has ended.
pub(crate) fn validated(reason: &'static str, rows: u64) {
    metrics::counter!(VALIDATIONS, "reason" => reason).increment(1);
    metrics::counter!(VALIDATED).increment(rows);
}

/// Counts a call that has ended.
pub(crate) fn call_ended(ended: &Ended) {
    let &Ended { front, method, ref by, reason, took } = ended;
    let calls = by.calls(method);
    let requests = || recorders::requests(front, method, by, reason);
    match reason {
        // Success is the common case, so its counter is cached.
        OK => calls.ok(front, requests).increment(1),
        _ => requests().increment(1),
    }
    calls.duration.record(took);
    if let Some(latency) = front.latency.filter(|_| method.runs()) {
        latency.record(by, took);
    }
}

/// A stage of a prediction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Queue,
    Decode,
    Engine,
    Encode,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Queue, Self::Decode, Self::Engine, Self::Encode];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Decode => "decode",
            Self::Engine => "engine",
            Self::Encode => "encode",
        }
    }
}

/// Records the time that a prediction spent in a stage.
pub(crate) fn stage(stage: Stage, by: &ServedAs, took: Duration) {
    by.recorders().stages[stage as usize].record(took);
}

/// Records the size of a prediction: the treatments of each user, and the features.
pub(crate) fn packed(
    by: &ServedAs,
    treatments: impl ExactSizeIterator<Item = usize>,
    counts: &FeatureCounts,
) {
    #[allow(clippy::cast_precision_loss)]
    let number = |count: usize| count as f64;
    let recorders = by.recorders();
    recorders.users.record(number(treatments.len()));
    treatments.for_each(|count| recorders.treatments.record(number(count)));
    let counts = [counts.missing, counts.unknown, counts.out_of_vocabulary];
    for (counter, count) in recorders.features.iter().zip(counts) {
        counter.increment(count);
    }
}

/// Records a score.
pub(crate) fn score(by: &ServedAs, score: f64) {
    by.recorders().scores.record(score);
}

/// Increments a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn one(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Counts a request in progress.
pub(crate) fn in_flight(method: Method) -> Counted {
    Counted::one(IN_FLIGHT_OF[method as usize].clone())
}

static IN_FLIGHT_OF: LazyLock<[Gauge; Method::ALL.len()]> = LazyLock::new(|| {
    Method::ALL.map(|method| metrics::gauge!(IN_FLIGHT, "method" => method.as_str()))
});

/// A secret that is read from files.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Secret {
    Tls,
    Tokens,
    Operator,
}

impl Secret {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Tokens => "tokens",
            Self::Operator => "operator",
        }
    }
}

/// Registers the counters of a secret at zero, so that rate() sees the first failure.
pub(crate) fn secrets_begin(secret: Secret) {
    for outcome in ["ok", "failed"] {
        metrics::counter!(SECRETS, "secret" => secret.as_str(), "outcome" => outcome).absolute(0);
    }
}

/// Counts a change of a secret's files.
pub(crate) fn secret_reloaded(secret: Secret, usable: bool) {
    let outcome = if usable { "ok" } else { "failed" };
    metrics::counter!(SECRETS, "secret" => secret.as_str(), "outcome" => outcome).increment(1);
}

/// The outcome of a reload of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadOutcome {
    Ok,
    Unchanged,
    Refused,
    Invalid,
}

impl ReloadOutcome {
    const ALL: [Self; 4] = [Self::Ok, Self::Unchanged, Self::Refused, Self::Invalid];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
        }
    }
}

/// Registers the counters of reloads at zero.
pub(crate) fn config_reloads_begin() {
    for outcome in ReloadOutcome::ALL {
        metrics::counter!(RELOADS, "outcome" => outcome.as_str()).absolute(0);
    }
    metrics::gauge!(RELOADED).set(1.0);
}

/// Counts a reload of the configuration.
pub(crate) fn config_reloaded(outcome: ReloadOutcome) {
    metrics::counter!(RELOADS, "outcome" => outcome.as_str()).increment(1);
    let is_successful = matches!(outcome, ReloadOutcome::Ok | ReloadOutcome::Unchanged);
    metrics::gauge!(RELOADED).set(f64::from(u8::from(is_successful)));
}

/// Records the expiry of the certificate in force, in seconds since 1970.
pub(crate) fn certificate_expires(at: i64) {
    #[allow(clippy::cast_precision_loss)]
    metrics::gauge!(EXPIRY).set(at as f64);
}

/// Counts a request that the live version answered in place of a canary.
pub(crate) fn stood_in(by: &ServedAs) {
    by.recorders().stand_ins.increment(1);
}

/// Counts a handler that panicked.
pub(crate) fn panicked(method: Method) {
    metrics::counter!(PANICS, "method" => method.as_str()).increment(1);
}

/// Records whether the server is ready.
pub(crate) fn ready(ready: bool) {
    metrics::gauge!(READY).set(f64::from(u8::from(ready)));
}

/// Records the build's version, and registers the counters at zero, so that rate() sees the first
/// increment.
pub(crate) fn begin() {
    for limit in Limit::ALL {
        metrics::counter!(REFUSED, "limit" => limit.as_str()).absolute(0);
    }
    for method in Method::ALL {
        metrics::counter!(PANICS, "method" => method.as_str()).absolute(0);
    }
    metrics::counter!(VALIDATIONS, "reason" => OK).absolute(0);
    metrics::counter!(VALIDATED).absolute(0);
    LazyLock::force(&IN_FLIGHT_OF);
    waits::begin();
    metrics::gauge!(
        BUILD,
        "version" => env!("CARGO_PKG_VERSION"),
        "revision" => env!("OUTRIGGER_REVISION"),
        "rustc" => env!("OUTRIGGER_RUSTC")
    )
    .set(1.0);
}
