//! The metrics of trials.

mod begin;

use std::collections::BTreeMap;

use metrics::SharedString;
use outrigger_canary::{Observation, Outcome, Pair, Share};
use outrigger_core::{Arm, Failure, Metric, MetricKind, ModelName, machines::TagKey};

pub use self::begin::begin;
pub(crate) use self::begin::trial_begins;
use crate::{
    labels::{OTHER, model_label, trial_labels},
    outcomes::Recorded,
    views::{CanaryDecision, CanaryPhase, CanaryView},
};

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
const CANARY_LOST: &str = "outrigger_canary_outcomes_lost_total";
const CANARY_HELD_BACK: &str = "outrigger_canary_held_back";
const CANARY_PAUSES: &str = "outrigger_canary_pauses_total";
const CANARY_LEFT_TO_LIVE: &str = "outrigger_canary_left_to_live_total";
const CANARY_VERDICTS: &str = "outrigger_canary_verdicts_total";

/// Every metric of this crate.
pub const METRICS: &[Metric] = &[
    Metric {
        name: CANARIES,
        kind: MetricKind::Gauge,
        labels: &["phase"],
        help: "Canaries, by phase (waiting, warming_up, split, promoting, recommended, rejected). \
               Waiting includes trials that are paused because their tag has no requests.",
    },
    Metric {
        name: CANARY_SHARE,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "The canary's share of its tag's traffic.",
    },
    Metric {
        name: CANARY_REQUESTS,
        kind: MetricKind::Counter,
        labels: &["model", "arm", "outcome"],
        help: "Requests that were part of a trial, by assigned arm (live, canary) and outcome \
               (scored, non_finite, failed, empty).",
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
               lost or misrouted, and the comparison cannot be trusted.",
    },
    Metric {
        name: CANARY_SHADOWS,
        kind: MetricKind::Counter,
        labels: &["model", "outcome"],
        help: "Requests on live that are shadowed to the canary, by outcome: agreed and disagreed \
               about the first treatment, unanswered by the canary, or skipped because too many \
               were in progress.",
    },
    Metric {
        name: CANARY_SKEW,
        kind: MetricKind::Gauge,
        labels: &["model", "tag", "arm"],
        help: "The distance of an arm's features from the profile.json of its model: the largest \
               difference of a category's share, in the latest trial.",
    },
    Metric {
        name: CANARY_STARVING,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "1 while a canary on trial is forecast not to be decided in its time, or that time \
               is over.",
    },
    Metric {
        name: CANARY_STARVED,
        kind: MetricKind::Counter,
        labels: &["model"],
        help: "Trials of canaries that starved: they could not be decided in their time.",
    },
    Metric {
        name: CANARY_TIME,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "The used part of the maximum time of a canary's trial, 0 to 1 and more; 0 without \
               a trial.",
    },
    Metric {
        name: CANARY_LOST,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Outcomes of requests that were lost because a trial had no room for them.",
    },
    Metric {
        name: CANARY_LEFT_TO_LIVE,
        kind: MetricKind::Counter,
        labels: &["model"],
        help: "Requests assigned to a canary that live answered, because the canary had as many \
               calls in flight as its share of the engine allows, or was held back.",
    },
    Metric {
        name: CANARY_HELD_BACK,
        kind: MetricKind::Gauge,
        labels: &["model", "tag"],
        help: "1 while a canary on trial gets requests only in probes or not at all, because live \
               became far worse than before the split.",
    },
    Metric {
        name: CANARY_PAUSES,
        kind: MetricKind::Counter,
        labels: &["model"],
        help: "The number of times that a canary's requests were stopped, because live became far \
               worse than before the split.",
    },
    Metric {
        name: CANARY_VERDICTS,
        kind: MetricKind::Counter,
        labels: &["operation", "outcome"],
        help: "Decisions shared through the registry: publish (sent to other control planes: ok \
               or a reason) and look (read from other control planes: found, none or a reason).",
    },
];

pub(crate) fn verdict_published(result: &Result<(), Failure>) {
    let outcome = result.as_ref().map_or_else(|failure| failure.reason.as_str(), |()| "ok");
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

/// A model's label in counters; models without one of their own share one.
fn model(name: &ModelName) -> SharedString {
    model_label(name).map_or(SharedString::const_str(OTHER), SharedString::from)
}

/// Sets a gauge of a trial; a trial without labels of its own has no gauges.
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

/// Resets the gauges of a trial that has ended.
pub(crate) fn trial_ends(key: &TagKey) {
    share(key, None);
    sizes_fit(key, true);
    held_back(key, false);
    time_used(key, 0.0, false);
}

pub(crate) fn tried(name: &ModelName, records: &[Recorded]) {
    let mut requests = BTreeMap::<(Arm, &str), u64>::new();
    let mut shadows = BTreeMap::<&str, u64>::new();
    for record in records {
        match record {
            Recorded::Outcome(_, Observation { arm, outcome, .. }) => {
                *requests.entry((*arm, outcome_name(*outcome))).or_default() += 1;
            }
            Recorded::LeftOut(_) | Recorded::Features(..) => {}
            Recorded::Pair(Pair { same_top, .. }) => {
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

/// Counts requests of live without a canary's answer for comparison: those not sent to the canary,
/// and those it did not answer.
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

/// Records the part of its time that a trial has used, and whether it starves.
pub(crate) fn time_used(key: &TagKey, ratio: f64, starving: bool) {
    set(CANARY_TIME, key, ratio);
    set(CANARY_STARVING, key, f64::from(u8::from(starving)));
}

pub(crate) fn starved(name: &ModelName) {
    metrics::counter!(CANARY_STARVED, "model" => model(name)).increment(1);
}

pub(crate) fn skew(key: &TagKey, arm: Arm, size: f64) {
    if let Some((model, tag)) = trial_labels(key) {
        metrics::gauge!(CANARY_SKEW, "model" => model, "tag" => tag, "arm" => arm.as_str())
            .set(size);
    }
}

/// Records whether a canary gets only probes or nothing.
pub(crate) fn held_back(key: &TagKey, held_back: bool) {
    set(CANARY_HELD_BACK, key, f64::from(u8::from(held_back)));
}

/// Counts a stop of a canary's requests.
pub(crate) fn paused(name: &ModelName) {
    metrics::counter!(CANARY_PAUSES, "model" => model(name)).increment(1);
}

/// Counts requests assigned to the canary that live answered, for want of room.
pub(crate) fn left_to_live(name: &ModelName, count: u64) {
    metrics::counter!(CANARY_LEFT_TO_LIVE, "model" => model(name)).increment(count);
}

pub(crate) fn lost(count: u64) {
    metrics::counter!(CANARY_LOST).increment(count);
}
