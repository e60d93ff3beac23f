//! Registers series at 0 at the start, so that `rate()` sees the first increment: the outcomes
//! without a reason, and the reasons used by alerts.

use outrigger_core::{Reason, Stage};

use super::{
    CACHE, FAILURES, GATES, LOOKUPS, PULLS, REPLAYS, SIGNATURES, SWITCHES, TIME_IN_STATE,
    TRANSITIONS,
};

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

/// Registers the series without a model label.
pub(crate) fn begin() {
    metrics::counter!(SWITCHES).absolute(0);
    super::quarantined(0);
    super::journal_behind(false);
    for (counter, outcomes) in OUTCOMES {
        for &outcome in outcomes {
            metrics::counter!(counter, "outcome" => outcome).absolute(0);
        }
    }
    metrics::counter!(FAILURES, "reason" => UNSIGNED).absolute(0);
    for (kind, result) in [("tree", "hit"), ("tree", "miss"), ("blob", "hit"), ("blob", "miss")] {
        metrics::counter!(CACHE, "kind" => kind, "result" => result).absolute(0);
    }
    for pair in Stage::ALL.windows(2) {
        let (from, to) = (pair[0].as_str(), pair[1].as_str());
        metrics::counter!(TRANSITIONS, "from" => from, "to" => to).absolute(0);
    }
    for stage in Stage::ALL {
        // A histogram only needs to be registered.
        let _ = metrics::histogram!(TIME_IN_STATE, "state" => stage.as_str());
    }
}
