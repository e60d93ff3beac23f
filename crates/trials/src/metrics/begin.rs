//! Registers series at 0 at the start, so that `rate()` sees the first increment.

use outrigger_canary::Share;
use outrigger_core::{Arm, machines::TagKey};

use super::{
    CANARY_DECISIONS, CANARY_LOST, CANARY_PAUSES, CANARY_REQUESTS, CANARY_SHADOWS, CANARY_STARVED,
    CANARY_VERDICTS, canaries, left_to_live, model, share,
};
use crate::views::CanaryOutcome;

/// Registers the series without a model label.
pub fn begin() {
    canaries(&[]);
    metrics::counter!(CANARY_LOST).absolute(0);
    for (operation, outcome) in [("publish", "ok"), ("look", "found"), ("look", "none")] {
        metrics::counter!(CANARY_VERDICTS, "operation" => operation, "outcome" => outcome)
            .absolute(0);
    }
}

/// Registers the series of a tag with a canary on trial and of its model, and sets the canary's
/// share.
pub(crate) fn trial_begins(key: &TagKey, of_traffic: Option<Share>) {
    let name = &key.name;
    share(key, of_traffic);
    metrics::counter!(CANARY_STARVED, "model" => model(name)).absolute(0);
    metrics::counter!(CANARY_PAUSES, "model" => model(name)).absolute(0);
    left_to_live(name, 0);
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
