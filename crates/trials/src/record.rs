//! The state of the trials that survives a restart.

use std::collections::{BTreeMap, VecDeque};

use outrigger_canary::{Exposures, Progress, Salt};
use outrigger_core::{Digest, ModelName, Tag, machines::TagKey};
use serde::{Deserialize, Serialize};

use crate::{
    callers::Callers,
    pair::Pair,
    views::{By, CanaryDecision},
};

/// Trials and decisions in stored form.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryRecord {
    trials: Vec<TrialRecord>,
    decisions: VecDeque<CanaryDecision>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialRecord {
    model: ModelName,
    tag: Tag,
    live: Digest,
    canary: Digest,
    progress: Progress,
    #[serde(default)]
    exposures: Exposures,
    #[serde(default)]
    salt: Option<Salt>,
    #[serde(default)]
    callers: Callers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decided: Option<Decided>,
}

/// A trial that can continue from this state.
#[derive(Debug, Clone)]
pub(crate) struct Paused {
    pub(crate) pair: Pair,
    pub(crate) progress: Progress,
    pub(crate) exposures: Exposures,
    /// `None` if it has not begun, or began in a version whose salt was no secret: it gets another.
    pub(crate) salt: Option<Salt>,
    pub(crate) callers: Callers,
    pub(crate) decided: Option<Decided>,
}

/// The decision about a trial that has not ended yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decided {
    Recommended,
    Promoted(By),
}

impl Paused {
    /// Creates a trial without any outcomes.
    pub(crate) fn new(pair: Pair) -> Self {
        Self {
            pair,
            progress: Progress::default(),
            exposures: Exposures::new(),
            salt: None,
            callers: Callers::default(),
            decided: None,
        }
    }
}

impl CanaryRecord {
    pub(crate) fn new(
        trials: impl Iterator<Item = (TagKey, Paused)>,
        decisions: VecDeque<CanaryDecision>,
    ) -> Self {
        let trials = trials.map(|(key, paused)| TrialRecord::new(key, paused));
        Self { trials: trials.collect(), decisions }
    }

    /// Returns the trials by tag, and the decisions.
    pub(crate) fn into_parts(self) -> (BTreeMap<TagKey, Paused>, VecDeque<CanaryDecision>) {
        (self.trials.into_iter().map(TrialRecord::into_paused).collect(), self.decisions)
    }
}

impl TrialRecord {
    fn new(key: TagKey, paused: Paused) -> Self {
        let Paused { pair: Pair { live, canary }, progress, exposures, salt, callers, decided } =
            paused;
        let TagKey { name: model, tag } = key;
        Self { model, tag, live, canary, progress, exposures, salt, callers, decided }
    }

    fn into_paused(self) -> (TagKey, Paused) {
        let Self { model, tag, live, canary, progress, exposures, salt, callers, decided } = self;
        let pair = Pair { live, canary };
        (TagKey { name: model, tag }, Paused { pair, progress, exposures, salt, callers, decided })
    }
}
