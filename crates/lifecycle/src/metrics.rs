//! What this crate counts.

mod begin;

use std::{collections::BTreeMap, time::Duration};

use metrics::SharedString;
use outrigger_canary::{Observation, Outcome, Pair, Share};
use outrigger_core::{
    Arm, Digest, EngineId, Failure, Metric, MetricKind, ModelName, Reason, Stage, Tag,
    engine::Condition,
    fleet::{Counts, TagKey},
};

pub(crate) use self::begin::{begin, trial_begins};
use crate::{
    Replayed,
    canaries::{CanaryDecision, CanaryPhase, CanaryView},
    labels::{OTHER, model_label, trial_labels},
    outcomes::Noted,
    signatures::Verified,
};

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
const CANARIES: &str = "outrigger_canaries";
const CANARY_SHARE: &str = "outrigger_canary_share";
const CANARY_REQUESTS: &str = "outrigger_canary_requests_total";
const CANARY_DECISIONS: &str = "outrigger_canary_decisions_total";
const CANARY_MISMATCH: &str = "outrigger_canary_share_mismatch";
const CANARY_SHADOWS: &str = "outrigger_canary_shadows_total";
const CANARY_SKEW: &str = "outrigger_canary_skew";
const CANARY_STARVING: &str = "outrigger_canary_starving";
const CANARY_STARVED: &str = "outrigger_canary_starved_total";
const CANARY_TIME: &str = "outrigger_canary_time_ratio";
const CACHE: &str = "outrigger_model_cache_total";
const CANARY_LOST: &str = "outrigger_canary_outcomes_lost_total";
const CANARY_VERDICTS: &str = "outrigger_canary_verdicts_total";

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
        help: "How long a version was in a state when it left it.",
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
        help: "Look-ups of tags in the registry, by outcome: ok, no_canary (there is none, which \
               is normal) or a reason.",
    },
    Metric {
        name: SWITCHES,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Times a tag began to be answered by another version.",
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
        help: "Recent requests that new versions were warmed up with, by outcome: answered, \
               skipped (they are not of that version, or there was no time) or failed.",
    },
    Metric {
        name: RESTARTS,
        kind: MetricKind::Counter,
        labels: &["engine"],
        help: "Times an engine was found to have restarted.",
    },
    Metric {
        name: REACHABLE,
        kind: MetricKind::Gauge,
        labels: &["engine"],
        help: "1 when an engine answered the last time it was asked, else 0.",
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
        help: "Verifications of images that have to be signed, by outcome: found (by what the \
               registry has), kept (by what lies in the store) or a reason. Versions that are up \
               are verified again with images.poll_interval.",
    },
    Metric {
        name: CANARIES,
        kind: MetricKind::Gauge,
        labels: &["phase"],
        help: "Canaries, by phase (waiting, warming_up, split, promoting, recommended, rejected). \
               Waiting are those, too, whose trial goes on when somebody asks for the tag.",
    },
    Metric {
        name: CANARY_SHARE,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "The share of a tag's traffic that its canary has.",
    },
    Metric {
        name: CANARY_REQUESTS,
        kind: MetricKind::Counter,
        labels: &["model", "arm", "outcome"],
        help: "Requests that were part of a trial, by the arm they were assigned to (live, \
               canary) and what came of them (scored, non_finite, failed, empty).",
    },
    Metric {
        name: CANARY_DECISIONS,
        kind: MetricKind::Counter,
        labels: &["model", "outcome"],
        help: "Decisions about canaries: promoted, rolled_back, recommended, refused or \
               superseded.",
    },
    Metric {
        name: CANARY_MISMATCH,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "1 while the sizes of a trial's arms do not fit the canary's share: requests are \
               lost or misrouted on the way, and the comparison is not to be trusted.",
    },
    Metric {
        name: CANARY_SHADOWS,
        kind: MetricKind::Counter,
        labels: &["model", "outcome"],
        help: "Requests on live that the canary was to answer as well, by what came of it: agreed \
               and disagreed about the first treatment, unanswered by the canary, or skipped, \
               since too many were under way.",
    },
    Metric {
        name: CANARY_SKEW,
        kind: MetricKind::Gauge,
        labels: &["model", "tag", "arm"],
        help: "How far the features of an arm's requests are from the profile.json of the arm's \
               model: the largest difference of a category's share, of the last trial.",
    },
    Metric {
        name: CANARY_STARVING,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "1 while a canary on trial will not be decided in the time it has, by the requests \
               it gets, or that time is over.",
    },
    Metric {
        name: CANARY_STARVED,
        kind: MetricKind::Counter,
        labels: &["model"],
        help: "Trials of canaries that starved: it became clear that they will not be decided in \
               the time they have.",
    },
    Metric {
        name: CANARY_TIME,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "How much of its maximum time a canary's trial has used, 0 to 1 and more; 0 without \
               a trial.",
    },
    Metric {
        name: CACHE,
        kind: MetricKind::Counter,
        labels: &["kind", "result"],
        help: "Files that a version needed, by kind (tree: a whole unpacked image; blob: a layer) \
               and result: hit (they were in the store) or miss (they were fetched).",
    },
    Metric {
        name: CANARY_LOST,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Outcomes of requests that a trial had no room for.",
    },
    Metric {
        name: CANARY_VERDICTS,
        kind: MetricKind::Counter,
        labels: &["operation", "outcome"],
        help: "Decisions shared through the registry: publish (other control planes are told: ok \
               or a reason) and look (they are listened to: found, none or a reason).",
    },
];

fn outcome<T>(result: &Result<T, Failure>) -> &'static str {
    result.as_ref().map_or_else(|failure| failure.reason.as_str(), |_| "ok")
}

pub(crate) fn pulled<T>(result: &Result<T, Failure>) {
    metrics::counter!(PULLS, "outcome" => outcome(result)).increment(1);
}

pub(crate) fn verified(result: &Result<Verified, Failure>) {
    let outcome = match result {
        Ok(Verified::Free) => return,
        Ok(Verified::Kept) => "kept",
        Ok(Verified::Found(_)) => "found",
        Err(failure) => failure.reason.as_str(),
    };
    metrics::counter!(SIGNATURES, "outcome" => outcome).increment(1);
}

pub(crate) fn verdict_published(result: &Result<(), Failure>) {
    let outcome = outcome(result);
    metrics::counter!(CANARY_VERDICTS, "operation" => "publish", "outcome" => outcome).increment(1);
}

pub(crate) fn verdict_looked_for<T>(result: &Result<Option<T>, Failure>) {
    let outcome = match result {
        Ok(Some(_)) => "found",
        Ok(None) => "none",
        Err(failure) => failure.reason.as_str(),
    };
    metrics::counter!(CANARY_VERDICTS, "operation" => "look", "outcome" => outcome).increment(1);
}

pub(crate) fn resolved(result: &Result<Digest, outrigger_oci::Error>, tag: &Tag) {
    let outcome = match result.as_ref().map_err(|error| error.reason()) {
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

/// Records how the engines do.
pub(crate) fn engines(engines: &BTreeMap<EngineId, Condition>) {
    for (id, condition) in engines {
        let reachable = f64::from(u8::from(condition.is_reachable()));
        metrics::gauge!(REACHABLE, "engine" => id.to_string()).set(reachable);
        metrics::counter!(RESTARTS, "engine" => id.to_string()).absolute(condition.restarts);
    }
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

/// The model's label in what is added up; those without one of their own share one.
fn model(name: &ModelName) -> SharedString {
    model_label(name).map_or(SharedString::const_str(OTHER), SharedString::from)
}

/// Sets a gauge of a trial; of one without labels of its own there is none.
fn set(gauge: &'static str, key: &TagKey, value: f64) {
    if let Some((model, tag)) = trial_labels(key) {
        metrics::gauge!(gauge, "model" => model, "tag" => tag).set(value);
    }
}

pub(crate) fn canaries(canaries: &[CanaryView]) {
    for phase in CanaryPhase::ALL {
        let count = canaries.iter().filter(|canary| canary.phase == phase).count();
        metrics::gauge!(CANARIES, "phase" => phase.as_str()).set(count as f64);
    }
}

pub(crate) fn share(key: &TagKey, share: Option<Share>) {
    set(CANARY_SHARE, key, share.map_or(0.0, Share::probability));
}

pub(crate) fn tried(name: &ModelName, noted: &[Noted]) {
    let mut requests = BTreeMap::<(Arm, &str), u64>::new();
    let mut shadows = BTreeMap::<&str, u64>::new();
    for noted in noted {
        match noted {
            Noted::Outcome(_, Observation { arm, outcome, .. }) => {
                *requests.entry((*arm, outcome_name(*outcome))).or_default() += 1;
            }
            Noted::Features(..) => {}
            Noted::Pair(Pair { same_top, .. }) => {
                let outcome = if *same_top { "agreed" } else { "disagreed" };
                *shadows.entry(outcome).or_default() += 1;
            }
        }
    }
    for ((arm, outcome), count) in requests {
        metrics::counter!(
            CANARY_REQUESTS, "model" => model(name), "arm" => arm.as_str(), "outcome" => outcome
        )
        .increment(count);
    }
    shadows.into_iter().for_each(|(outcome, count)| shadowed(name, outcome, count));
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Scored(_) => "scored",
        Outcome::NonFinite => "non_finite",
        Outcome::Failed => "failed",
        Outcome::Empty => "empty",
    }
}

/// Requests that the canary was not asked about aside, and that it did not answer.
pub(crate) fn unpaired(name: &ModelName, (skipped, unanswered): (u64, u64)) {
    for (outcome, count) in [("skipped", skipped), ("unanswered", unanswered)] {
        if count > 0 {
            shadowed(name, outcome, count);
        }
    }
}

fn shadowed(name: &ModelName, outcome: &'static str, count: u64) {
    metrics::counter!(CANARY_SHADOWS, "model" => model(name), "outcome" => outcome)
        .increment(count);
}

pub(crate) fn decided(decision: &CanaryDecision) {
    let outcome = decision.outcome.as_str();
    metrics::counter!(
        CANARY_DECISIONS, "model" => model(&decision.model), "outcome" => outcome
    )
    .increment(1);
}

pub(crate) fn sizes_fit(key: &TagKey, fit: bool) {
    set(CANARY_MISMATCH, key, f64::from(u8::from(!fit)));
}

/// Notes how much of its time a trial has used, and whether that will do.
pub(crate) fn time_used(key: &TagKey, ratio: f64, starving: bool) {
    set(CANARY_TIME, key, ratio);
    set(CANARY_STARVING, key, f64::from(u8::from(starving)));
}

pub(crate) fn starved(name: &ModelName) {
    metrics::counter!(CANARY_STARVED, "model" => model(name)).increment(1);
}

/// Counts an unpacked image that was there, or was not.
pub(crate) fn tree_wanted(there: bool) {
    wanted("tree", usize::from(there), usize::from(!there));
}

/// Counts layers that were there, and others.
pub(crate) fn layers_wanted(there: usize, missing: usize) {
    wanted("blob", there, missing);
}

fn wanted(kind: &'static str, there: usize, missing: usize) {
    for (result, count) in [("hit", there), ("miss", missing)] {
        metrics::counter!(CACHE, "kind" => kind, "result" => result).increment(count as u64);
    }
}

pub(crate) fn skew(key: &TagKey, arm: Arm, size: f64) {
    if let Some((model, tag)) = trial_labels(key) {
        metrics::gauge!(CANARY_SKEW, "model" => model, "tag" => tag, "arm" => arm.as_str())
            .set(size);
    }
}

pub(crate) fn lost(count: u64) {
    metrics::counter!(CANARY_LOST).increment(count);
}
