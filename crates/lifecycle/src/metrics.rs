//! The metrics of this crate.

mod begin;

use std::{collections::BTreeMap, time::Duration};

use outrigger_core::{
    Digest, EngineId, Failure, Metric, MetricKind, Reason, Stage, Tag, engine::Condition,
    machines::Counts,
};

pub(crate) use self::begin::begin;
use crate::replay::Replayed;

const MODELS: &str = "outrigger_models";
const TRANSITIONS: &str = "outrigger_model_transitions_total";
const TIME_IN_STATE: &str = "outrigger_model_state_duration_seconds";
const FAILURES: &str = "outrigger_model_failures_total";
const PULLS: &str = "outrigger_model_pulls_total";
const LOOKUPS: &str = "outrigger_tag_lookups_total";
const SWITCHES: &str = "outrigger_tag_switches_total";
const GATES: &str = "outrigger_model_gate_total";
const REPLAYS: &str = "outrigger_model_replays_total";
const RESTARTS: &str = "outrigger_engine_restarts_total";
const REACHABLE: &str = "outrigger_engine_reachable";
const EVENTS: &str = "outrigger_machine_events_total";
const SIGNATURES: &str = "outrigger_signature_verifications_total";
const UNEXPLAINED: &str = "outrigger_engine_crashes_unexplained";
const QUARANTINED: &str = "outrigger_models_quarantined";
const JOURNAL_BEHIND: &str = "outrigger_journal_behind";
const CACHE: &str = "outrigger_model_cache_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[
    Metric {
        name: MODELS,
        kind: MetricKind::Gauge,
        labels: &["state"],
        help: "Versions of models by state (new, downloaded, loaded, available).",
    },
    Metric {
        name: TRANSITIONS,
        kind: MetricKind::Counter,
        labels: &["from", "to"],
        help: "Changes of a version's state.",
    },
    Metric {
        name: TIME_IN_STATE,
        kind: MetricKind::Histogram,
        labels: &["state"],
        help: "Time that a version spent in a state, recorded when it left it.",
    },
    Metric {
        name: FAILURES,
        kind: MetricKind::Counter,
        labels: &["reason"],
        help: "Failures of bringing a version up, each followed by a retry unless it is permanent.",
    },
    Metric {
        name: PULLS,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Pulls of images that ended, by outcome: ok or a reason.",
    },
    Metric {
        name: LOOKUPS,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Look-ups of tags in the registry, by outcome: ok, no_canary (no canary tag exists, \
               which is normal) or a reason.",
    },
    Metric {
        name: SWITCHES,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Changes of the version that answers for a tag.",
    },
    Metric {
        name: GATES,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Passages through the golden gate, by outcome: ok or a reason.",
    },
    Metric {
        name: REPLAYS,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Recent requests replayed to warm up new versions, by outcome: answered, skipped \
               (of another version, or out of time) or failed.",
    },
    Metric {
        name: RESTARTS,
        kind: MetricKind::Counter,
        labels: &["engine"],
        help: "Detected restarts of the engine.",
    },
    Metric {
        name: REACHABLE,
        kind: MetricKind::Gauge,
        labels: &["engine"],
        help: "1 if the engine answered its latest probe, else 0.",
    },
    Metric {
        name: EVENTS,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Events that the state machines dropped: stale ones belong to an earlier attempt, \
               unexpected ones point to a defect.",
    },
    Metric {
        name: SIGNATURES,
        kind: MetricKind::Counter,
        labels: &["outcome"],
        help: "Verifications of images that must be signed, by outcome: found (with a signature \
               from the registry), kept (with one from the store) or a reason. Loaded versions \
               are verified again every images.poll_interval.",
    },
    Metric {
        name: CACHE,
        kind: MetricKind::Counter,
        labels: &["kind", "result"],
        help: "Files that a version needed, by kind (tree: a whole unpacked image; blob: a layer) \
               and result: hit (they were in the store) or miss (they were fetched).",
    },
    Metric {
        name: UNEXPLAINED,
        kind: MetricKind::Gauge,
        labels: &["engine"],
        help: "1 while the engine ends again and again and no version explains it, else 0.",
    },
    Metric {
        name: QUARANTINED,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Versions that are not loaded any more, because the engine ended again and again \
               while it loaded or ran them.",
    },
    Metric {
        name: JOURNAL_BEHIND,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "1 while the journal cannot be written, or a write takes long: routes change \
               meanwhile, and a restart would lose the changes. Else 0.",
    },
];

fn outcome<T>(result: &Result<T, Failure>) -> &'static str {
    result.as_ref().map_or_else(|failure| failure.reason.as_str(), |_| "ok")
}

pub(crate) fn pulled<T>(result: &Result<T, Failure>) {
    metrics::counter!(PULLS, "outcome" => outcome(result)).increment(1);
}

pub(crate) fn verified(outcome: &'static str) {
    metrics::counter!(SIGNATURES, "outcome" => outcome).increment(1);
}

pub(crate) fn resolved(result: &Result<Digest, Failure>, tag: &Tag) {
    let outcome = match result.as_ref().map_err(|failure| failure.reason) {
        Ok(_) => "ok",
        Err(Reason::TagNotFound) if tag.is_canary() => "no_canary",
        Err(reason) => reason.as_str(),
    };
    metrics::counter!(LOOKUPS, "outcome" => outcome).increment(1);
}

pub(crate) fn gated<T>(result: &Result<T, Failure>) {
    metrics::counter!(GATES, "outcome" => outcome(result)).increment(1);
}

pub(crate) fn replayed(replayed: &Replayed) {
    let Replayed { answered, skipped, failed, .. } = *replayed;
    for (outcome, count) in [("answered", answered), ("skipped", skipped), ("failed", failed)] {
        metrics::counter!(REPLAYS, "outcome" => outcome).increment(count);
    }
}

/// Records the condition of the engines.
pub(crate) fn engines(engines: &BTreeMap<EngineId, Condition>) {
    for (id, condition) in engines {
        let reachable = f64::from(u8::from(condition.is_reachable()));
        metrics::gauge!(REACHABLE, "engine" => id.to_string()).set(reachable);
        metrics::counter!(RESTARTS, "engine" => id.to_string()).absolute(condition.restarts);
    }
}

/// Records the number of versions in quarantine.
pub(crate) fn quarantined(versions: usize) {
    metrics::gauge!(QUARANTINED).set(versions as f64);
}

/// Records for each engine if no version explains its crashes.
pub(crate) fn unexplained<'a>(engines: impl Iterator<Item = (&'a EngineId, bool)>) {
    for (id, is_unexplained) in engines {
        let value = f64::from(u8::from(is_unexplained));
        metrics::gauge!(UNEXPLAINED, "engine" => id.to_string()).set(value);
    }
}

/// Records whether changes take effect before the journal has them.
pub(crate) fn journal_behind(is_behind: bool) {
    metrics::gauge!(JOURNAL_BEHIND).set(f64::from(u8::from(is_behind)));
}

pub(crate) fn switched() {
    metrics::counter!(SWITCHES).increment(1);
}

pub(crate) fn failed(failure: &Failure) {
    metrics::counter!(FAILURES, "reason" => failure.reason.as_str()).increment(1);
}

pub(crate) fn moved(from: Stage, to: Stage, after: Duration) {
    let (from, to) = (from.as_str(), to.as_str());
    metrics::counter!(TRANSITIONS, "from" => from, "to" => to).increment(1);
    metrics::histogram!(TIME_IN_STATE, "state" => from).record(after);
}

pub(crate) fn state(stages: &BTreeMap<Stage, usize>) {
    for stage in Stage::ALL {
        let count = stages.get(&stage).copied().unwrap_or_default();
        metrics::gauge!(MODELS, "state" => stage.as_str()).set(count as f64);
    }
}

pub(crate) fn dropped(counts: Counts) {
    metrics::counter!(EVENTS, "outcome" => "stale").absolute(counts.stale);
    metrics::counter!(EVENTS, "outcome" => "unexpected").absolute(counts.unexpected);
}

/// Counts whether an unpacked image was already in the store.
pub(crate) fn tree_wanted(there: bool) {
    wanted("tree", usize::from(there), usize::from(!there));
}

/// Counts layers already in the store, and missing ones.
pub(crate) fn layers_wanted(there: usize, missing: usize) {
    wanted("blob", there, missing);
}

fn wanted(kind: &'static str, there: usize, missing: usize) {
    for (result, count) in [("hit", there), ("miss", missing)] {
        metrics::counter!(CACHE, "kind" => kind, "result" => result).increment(count as u64);
    }
}
