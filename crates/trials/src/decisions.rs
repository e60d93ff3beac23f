//! The log of decisions about canaries.

use std::{collections::VecDeque, time::SystemTime};

use outrigger_core::{Digest, machines::TagKey};

use crate::{
    AUDIT, metrics,
    pair::Pair,
    views::{By, CanaryDecision, CanaryOutcome, VerdictView},
};

/// The number of decisions that are stored.
const MOST: usize = 500;

/// The decisions, latest first.
#[derive(Debug, Default)]
pub(crate) struct Decisions(pub(crate) VecDeque<CanaryDecision>);

impl Decisions {
    /// Stores a decision.
    pub(crate) fn add(&mut self, decision: CanaryDecision) {
        self.0.push_front(decision);
        self.0.truncate(MOST);
    }

    /// The latest final decision about a canary of a model.
    pub(crate) fn last_for_good(&self, key: &TagKey, canary: Digest) -> Option<&CanaryDecision> {
        self.0.iter().find(|it| {
            let for_good = matches!(
                it.outcome,
                CanaryOutcome::RolledBack | CanaryOutcome::Refused | CanaryOutcome::Promoted
            );
            for_good && it.model == key.name && it.canary == canary
        })
    }
}

/// Logs and counts a decision.
pub(crate) fn report(decision: &CanaryDecision) {
    metrics::decided(decision);
    // Audited even if the judge decided: it changes the answers that callers get.
    tracing::info!(
        target: AUDIT,
        outcome = decision.outcome.as_str(), by = %decision.by, reason = %decision.reason,
        model.name = %decision.model, model.tag = %decision.tag,
        model.digest = %decision.canary,
        "a canary is decided"
    );
}

/// Creates a decision with the current time.
pub(crate) fn decision(
    key: &TagKey,
    pair: Pair,
    outcome: CanaryOutcome,
    by: By,
    verdict: Option<VerdictView>,
) -> CanaryDecision {
    CanaryDecision {
        at: SystemTime::now(),
        model: key.name.clone(),
        tag: key.tag.clone(),
        live: Some(pair.live),
        canary: pair.canary,
        outcome,
        by: by.who,
        reason: by.why,
        verdict,
    }
}
