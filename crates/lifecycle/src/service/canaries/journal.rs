//! What of the canaries has to survive us.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use outrigger_canary::{Exposures, Progress};
use outrigger_core::{Digest, ModelName, Moment, Tag, fleet::TagKey};
use serde::{Deserialize, Serialize};

use super::{Pair, Promotion, Running};
use crate::{
    canaries::{By, CanaryDecision},
    jobs::Done,
    service::Service,
    world::blocking,
};

/// How often the time that trials have lasted is written down.
const PERIOD: Duration = Duration::from_secs(10);

/// When what was last written.
#[derive(Debug, Default)]
pub(in crate::service) struct Journal {
    number: u64,
    at: Moment,
    shape: Shape,
}

/// What is worth writing at once when it changes.
type Shape = (Vec<(TagKey, u64, usize, bool)>, usize, Option<std::time::SystemTime>);

/// Trials and decisions, as they are written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CanaryRecord {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decided: Option<Decided>,
}

/// A trial that may go on where it was.
#[derive(Clone)]
pub(super) struct Unfinished {
    pub(super) pair: Pair,
    pub(super) progress: Progress,
    pub(super) exposures: Exposures,
    pub(super) decided: Option<Decided>,
}

/// What was decided about a trial that has not ended yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decided {
    Recommended,
    Promoted(By),
}

impl Unfinished {
    /// One that has seen nothing yet.
    pub(super) fn new(pair: Pair) -> Self {
        let (progress, exposures) = (Progress::default(), Exposures::new());
        Self { pair, progress, exposures, decided: None }
    }
}

impl Running {
    /// What is needed to go on.
    pub(super) fn unfinished(&self, now: Moment) -> Unfinished {
        Unfinished {
            pair: self.pair,
            progress: self.trial.progress(now),
            exposures: self.outcomes.exposures().clone(),
            decided: match &self.promotion {
                Promotion::Recommended => Some(Decided::Recommended),
                promotion => promotion.by().cloned().map(Decided::Promoted),
            },
        }
    }
}

impl TrialRecord {
    fn of(key: &TagKey, unfinished: Unfinished) -> Self {
        let Unfinished { pair: Pair { live, canary }, progress, exposures, decided } = unfinished;
        let TagKey { name: model, tag } = key.clone();
        Self { model, tag, live, canary, progress, exposures, decided }
    }
}

impl Service {
    /// Takes over what an earlier process has left.
    pub(in crate::service) fn remember_canaries(&mut self, record: CanaryRecord) {
        self.canaries.decisions = record.decisions;
        let trials = record.trials.into_iter().map(|trial| {
            let TrialRecord { model, tag, live, canary, progress, exposures, decided } = trial;
            let pair = Pair { live, canary };
            (TagKey { name: model, tag }, Unfinished { pair, progress, exposures, decided })
        });
        self.canaries.unfinished = trials.collect();
    }

    /// Writes trials and decisions down when they have changed, and now and then.
    pub(super) fn keep_canaries(&mut self, now: Moment) {
        let shape = self.shape();
        let journal = &mut self.canaries.journal;
        let due = !shape.0.is_empty() && now.since(journal.at) >= PERIOD;
        if journal.shape == shape && !due {
            return;
        }
        *journal = Journal { number: journal.number + 1, at: now, shape };
        let (number, record) = (journal.number, self.canary_record(now));
        let world = Arc::clone(&self.world);
        self.jobs.start(Done::Nothing, async move {
            blocking(&world, move |world| world.write_canaries(number, &record)).await;
            Done::Nothing
        });
    }

    /// What the last process should know, and its number.
    pub(in crate::service) fn last_canary_record(&self) -> (u64, CanaryRecord) {
        (self.canaries.journal.number + 1, self.canary_record(self.clock.now()))
    }

    fn shape(&self) -> Shape {
        let trials = self.canaries.trials.iter();
        let trials = trials
            .map(|(key, it)| (key.clone(), it.number, it.trial.step(), it.promotion.is_decided()));
        let decisions = &self.canaries.decisions;
        (trials.collect(), decisions.len(), decisions.front().map(|latest| latest.at))
    }

    fn canary_record(&self, now: Moment) -> CanaryRecord {
        let trials = self.canaries.trials.iter();
        let trials = trials.map(|(key, it)| TrialRecord::of(key, it.unfinished(now)));
        // Those that have not gone on yet may do so in the next process.
        let unfinished = self.canaries.unfinished.iter();
        let unfinished = unfinished.map(|(key, it)| TrialRecord::of(key, it.clone()));
        CanaryRecord {
            trials: trials.chain(unfinished).collect(),
            decisions: self.canaries.decisions.clone(),
        }
    }
}
