//! The metrics of a worker.

use outrigger_batch::{ENDS, HostProgress, Progress};
use outrigger_console::{
    exposition::{self, family},
    process,
};
use outrigger_core::{Metric, MetricKind};

const INFO: Metric = gauge(
    "outrigger_batch_info",
    &["worker", "model", "output"],
    "1, with the worker's name, the job's model and the location of its output.",
);
const ROWS: Metric = gauge("outrigger_batch_rows", &[], "Rows of the job.");
const BEFORE: Metric = gauge(
    "outrigger_batch_rows_before",
    &[],
    "Rows of the job that were committed when the worker began.",
);
const READ: Metric =
    counter("outrigger_batch_rows_read_total", &[], "Rows that the worker has read.");
const SCORED: Metric =
    counter("outrigger_batch_rows_scored_total", &[], "Rows that the hosts have scored.");
const DEAD: Metric = counter(
    "outrigger_batch_rows_dead_total",
    &["reason"],
    "Rows that became dead letters, by reason: invalid_input, model_error, timeout, too_large, \
     bad_reply or host_lost.",
);
const COMMITTED: Metric = counter(
    "outrigger_batch_rows_committed_total",
    &[],
    "Rows of the chunks that the worker has committed.",
);
const CHUNKS: Metric =
    counter("outrigger_batch_chunks_committed_total", &[], "Chunks that the worker has committed.");
const PER_SECOND: Metric = gauge(
    "outrigger_batch_rows_per_second",
    &[],
    "Rows a second that all hosts scored for the worker lately.",
);
const PAUSED: Metric = gauge("outrigger_batch_paused", &[], "1 while the job is paused.");
const STORE_AWAY: Metric = gauge(
    "outrigger_batch_store_away",
    &[],
    "1 while the worker waits for a store that does not answer.",
);
const MEMORY: Metric =
    gauge("outrigger_batch_memory_bytes", &[], "Bytes of rows, requests and answers in memory.");
const MEMORY_PEAK: Metric = gauge(
    "outrigger_batch_memory_peak_bytes",
    &[],
    "The most bytes of rows, requests and answers so far.",
);
const MEMORY_LIMIT: Metric = gauge(
    "outrigger_batch_memory_limit_bytes",
    &[],
    "Bytes of rows, requests and answers that may be in memory: the part of the job's memory that is \
     left for them.",
);
const BLOCKED: Metric = counter(
    "outrigger_batch_writers_blocked_seconds_total",
    &[],
    "Time in which no row was read for want of memory that answers had which were not written yet.",
);
const CALLS: Metric = counter(
    "outrigger_batch_calls_total",
    &["host", "end"],
    "Requests that ended, by host and end: scored, withdrawn (another host was faster) or a class of \
     failures: unavailable, overloaded, lost (the connection broke), timeout, too_large, refused, \
     ambiguous (the host or the rows are at fault) or bad_reply (the answer was not valid).",
);
const IN_FLIGHT: Metric =
    gauge("outrigger_batch_calls_in_flight", &["host"], "Requests in flight at the host.");
const LIMIT: Metric =
    gauge("outrigger_batch_host_limit", &["host"], "The most requests in flight at the host.");
const BOUND: Metric = gauge(
    "outrigger_batch_host_bound",
    &["host", "bound"],
    "1 for the reason of the host's limit: start (not measured yet), round_trips (more requests \
     would wait there), refusals, user (the setting concurrency or rows_per_second), or quota (the \
     limit of requests or tokens).",
);
const OUT: Metric = gauge(
    "outrigger_batch_host_out",
    &["host"],
    "1 while the circuit breaker keeps requests from the host, or tests it with one.",
);
const HOST_ROWS: Metric =
    counter("outrigger_batch_host_rows_total", &["host"], "Rows that the host has scored.");
const HOST_PER_SECOND: Metric = gauge(
    "outrigger_batch_host_rows_per_second",
    &["host"],
    "Rows a second that the host scored lately.",
);
const ROUND_TRIP: Metric = gauge(
    "outrigger_batch_host_round_trip_seconds",
    &["host"],
    "The usual time of a request at the host. Absent until one was answered.",
);

/// The metrics of a worker, besides those of its process.
pub const METRICS: &[Metric] = &[
    INFO,
    ROWS,
    BEFORE,
    READ,
    SCORED,
    DEAD,
    COMMITTED,
    CHUNKS,
    PER_SECOND,
    PAUSED,
    STORE_AWAY,
    MEMORY,
    MEMORY_PEAK,
    MEMORY_LIMIT,
    BLOCKED,
    CALLS,
    IN_FLIGHT,
    LIMIT,
    BOUND,
    OUT,
    HOST_ROWS,
    HOST_PER_SECOND,
    ROUND_TRIP,
];

/// The reasons of dead rows and of limits, whose series exist from the start.
const REASONS: [&str; 6] =
    ["invalid_input", "model_error", "timeout", "too_large", "bad_reply", "host_lost"];
const BOUNDS: [&str; 5] = ["start", "round_trips", "refusals", "user", "quota"];

const INTRODUCTION: &str = "\
# Metrics of a batch job

This page is generated from the code.

`/metrics` on the listener of a worker ([`outrigger batch run --listen`](batch.md#the-status-page)) has these in Prometheus' text format. Each worker counts its own work since it began. Series with a label `host` exist for the hosts that the job has at the time.

";

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, labels, help }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind: MetricKind::Counter, labels, help }
}

/// The reference page of the metrics, Markdown.
pub fn reference_markdown() -> String {
    let mut metrics: Vec<_> = METRICS.iter().chain(process::METRICS).collect();
    metrics.sort_by_key(|metric| metric.name);
    let rows: String = metrics.into_iter().map(exposition::row).collect();
    format!("{INTRODUCTION}{}{rows}", exposition::TABLE)
}

/// The metrics of a worker and of this process in Prometheus' text format. `job` is the model and the
/// output of the job. Before the worker begins, there are those of the process only.
pub fn render(progress: &Progress, job: (&str, &str)) -> String {
    let mut text = process::text();
    if progress.worker.is_empty() {
        return text;
    }
    let info = [progress.worker.as_str(), job.0, job.1].map(str::to_owned);
    family(&mut text, &INFO, [(info, 1.0)]);
    for (metric, value) in figures(progress) {
        family(&mut text, &metric, [([], value)]);
    }
    let dead = REASONS.map(|reason| {
        let count = progress.reasons.get(reason).copied().unwrap_or_default();
        ([reason.to_owned()], count as f64)
    });
    family(&mut text, &DEAD, dead);
    hosts(&mut text, &progress.hosts);
    text
}

/// The figures without labels.
fn figures(progress: &Progress) -> [(Metric, f64); 13] {
    [
        (ROWS, progress.rows as f64),
        (BEFORE, progress.before as f64),
        (READ, progress.read as f64),
        (SCORED, progress.scored as f64),
        (COMMITTED, progress.committed as f64),
        (CHUNKS, progress.committed_chunks as f64),
        (PER_SECOND, progress.rows_per_second),
        (PAUSED, f64::from(u8::from(progress.is_paused))),
        (STORE_AWAY, f64::from(u8::from(progress.is_store_away))),
        (MEMORY, progress.memory as f64),
        (MEMORY_PEAK, progress.memory_peak as f64),
        (MEMORY_LIMIT, progress.memory_limit as f64),
        (BLOCKED, progress.blocked_seconds),
    ]
}

/// The series of the hosts.
fn hosts(text: &mut String, hosts: &[HostProgress]) {
    let mut each = |metric: &Metric, value: fn(&HostProgress) -> Option<f64>| {
        let of = |host: &HostProgress| Some(([host.host.clone()], value(host)?));
        family(text, metric, hosts.iter().filter_map(of));
    };
    each(&IN_FLIGHT, |host| Some(host.in_flight as f64));
    each(&LIMIT, |host| Some(host.limit as f64));
    each(&OUT, |host| Some(f64::from(u8::from(host.breaker != "closed"))));
    each(&HOST_ROWS, |host| Some(host.rows as f64));
    each(&HOST_PER_SECOND, |host| Some(host.rows_per_second));
    each(&ROUND_TRIP, |host| Some(host.round_trip_ms? / 1e3));
    let ends = hosts.iter().flat_map(|host| {
        ENDS.map(|end| {
            let count = host.ends.get(end).copied().unwrap_or_default();
            ([host.host.clone(), end.to_owned()], count as f64)
        })
    });
    family(text, &CALLS, ends);
    let bounds = hosts.iter().flat_map(|host| {
        BOUNDS.map(|bound| {
            let is_it = f64::from(u8::from(host.bound == bound));
            ([host.host.clone(), bound.to_owned()], is_it)
        })
    });
    family(text, &BOUND, bounds);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        let host = HostProgress {
            host: "a:8001".to_owned(),
            limit: 7,
            bound: "refusals".to_owned(),
            breaker: "half_open".to_owned(),
            round_trip_ms: Some(250.0),
            ends: [("scored".to_owned(), 9), ("timeout".to_owned(), 2)].into(),
            ..HostProgress::default()
        };
        Progress {
            worker: "w".to_owned(),
            rows: 100,
            scored: 40,
            dead: 3,
            reasons: [("bad_reply".to_owned(), 3)].into(),
            blocked_seconds: 0.5,
            is_store_away: true,
            hosts: vec![host],
            ..Progress::default()
        }
    }

    #[test]
    fn every_metric_has_a_series() {
        let text = render(&progress(), ("m", "out"));
        for metric in METRICS.iter().chain(process::METRICS) {
            let line = format!("\n{}", metric.name);
            assert!(
                text.contains(&format!("{line} ")) || text.contains(&format!("{line}{{")),
                "{line}"
            );
        }
        for series in [
            "outrigger_batch_info{worker=\"w\",model=\"m\",output=\"out\"} 1",
            "outrigger_batch_rows_scored_total 40",
            "outrigger_batch_paused 0",
            "outrigger_batch_store_away 1",
            "outrigger_batch_rows_dead_total{reason=\"bad_reply\"} 3",
            "outrigger_batch_rows_dead_total{reason=\"timeout\"} 0",
            "outrigger_batch_writers_blocked_seconds_total 0.5",
            "outrigger_batch_host_limit{host=\"a:8001\"} 7",
            "outrigger_batch_host_bound{host=\"a:8001\",bound=\"refusals\"} 1",
            "outrigger_batch_host_bound{host=\"a:8001\",bound=\"user\"} 0",
            "outrigger_batch_host_out{host=\"a:8001\"} 1",
            "outrigger_batch_host_round_trip_seconds{host=\"a:8001\"} 0.25",
            "outrigger_batch_calls_total{host=\"a:8001\",end=\"timeout\"} 2",
            "outrigger_batch_calls_total{host=\"a:8001\",end=\"lost\"} 0",
        ] {
            assert!(text.lines().any(|line| line == series), "{series}\n{text}");
        }
    }

    #[test]
    fn a_worker_that_has_not_begun_has_no_series() {
        let text = render(&Progress::default(), ("m", "out"));
        assert!(text.contains("process_") && !text.contains("outrigger_"), "{text}");
    }

    #[test]
    fn names_follow_the_conventions() {
        for metric in METRICS {
            let name = metric.name;
            assert!(name.starts_with("outrigger_batch_"), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
            assert!(!metric.help.contains(['|', '\n']), "{name} would break the table");
        }
    }
}
