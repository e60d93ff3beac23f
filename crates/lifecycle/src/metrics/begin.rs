//! What is counted begins at 0: it is there before anything has happened, and the first
//! time is a rise. Of outcomes that can be any reason, those begin that are none, and
//! those that alerts ask for by name.

use outrigger_canary::Share;
use outrigger_core::{Arm, Reason, Stage, fleet::TagKey};

use super::{
    CACHE, CANARY_DECISIONS, CANARY_LOST, CANARY_REQUESTS, CANARY_SHADOWS, CANARY_STARVED,
    CANARY_VERDICTS, FAILURES, GATES, LOOKUPS, PULLS, REPLAYS, SIGNATURES, SWITCHES, TIME_IN_STATE,
    TRANSITIONS, canaries, model, share,
};
use crate::canaries::CanaryOutcome;

const DENIED: &str = Reason::RegistryDenied.as_str();
const UNAVAILABLE: &str = Reason::RegistryUnavailable.as_str();
const FULL: &str = Reason::StoreFull.as_str();
const UNSIGNED: &str = Reason::SignatureMissing.as_str();

/// Counters with the label `outcome`.
const OUTCOMES: [(&str, &[&str]); 5] = [
    (PULLS, &["ok", DENIED, FULL]),
    (LOOKUPS, &["ok", "no_canary", DENIED, UNAVAILABLE]),
    (GATES, &["ok"]),
    (REPLAYS, &["answered", "skipped", "failed"]),
    (SIGNATURES, &["found", "kept"]),
];

/// Everything but what is told of single models.
pub(crate) fn begin() {
    canaries(&[]);
    for counter in [SWITCHES, CANARY_LOST] {
        metrics::counter!(counter).absolute(0);
    }
    for (counter, outcomes) in OUTCOMES {
        for &outcome in outcomes {
            metrics::counter!(counter, "outcome" => outcome).absolute(0);
        }
    }
    metrics::counter!(FAILURES, "reason" => UNSIGNED).absolute(0);
    for (operation, outcome) in [("publish", "ok"), ("look", "found"), ("look", "none")] {
        metrics::counter!(CANARY_VERDICTS, "operation" => operation, "outcome" => outcome)
            .absolute(0);
    }
    for (kind, result) in [("tree", "hit"), ("tree", "miss"), ("blob", "hit"), ("blob", "miss")] {
        metrics::counter!(CACHE, "kind" => kind, "result" => result).absolute(0);
    }
    for pair in Stage::ALL.windows(2) {
        let (from, to) = (pair[0].as_str(), pair[1].as_str());
        metrics::counter!(TRANSITIONS, "from" => from, "to" => to).absolute(0);
    }
    for stage in Stage::ALL {
        // To be known is enough for a histogram.
        let _ = metrics::histogram!(TIME_IN_STATE, "state" => stage.as_str());
    }
}

/// What is told of a tag whose canary is on trial, and of its model, with the canary's share.
pub(crate) fn trial_begins(key: &TagKey, of_traffic: Option<Share>) {
    let name = &key.name;
    share(key, of_traffic);
    metrics::counter!(CANARY_STARVED, "model" => model(name)).absolute(0);
    for outcome in CanaryOutcome::ALL {
        let outcome = outcome.as_str();
        metrics::counter!(CANARY_DECISIONS, "model" => model(name), "outcome" => outcome)
            .absolute(0);
    }
    for arm in [Arm::Live, Arm::Canary] {
        for outcome in ["scored", "non_finite", "failed", "empty"] {
            let arm = arm.as_str();
            metrics::counter!(
                CANARY_REQUESTS, "model" => model(name), "arm" => arm, "outcome" => outcome
            )
            .absolute(0);
        }
    }
    for outcome in ["agreed", "disagreed", "unanswered", "skipped"] {
        metrics::counter!(CANARY_SHADOWS, "model" => model(name), "outcome" => outcome).absolute(0);
    }
}
