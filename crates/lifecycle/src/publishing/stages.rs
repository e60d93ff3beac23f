//! The stages of versions; each transition is logged and counted once.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_core::{Digest, ModelName, Moment, Stage, machines::Machines, model::ModelMachine};

use crate::metrics;

/// The last known stage of each version, and the number of versions by stage.
#[derive(Default)]
pub(crate) struct Stages {
    reached: BTreeMap<ModelName, BTreeMap<Digest, Reached>>,
    counts: BTreeMap<Stage, usize>,
}

/// A version's last known stage, and the time since when it has been in it.
#[derive(Debug, Clone, Copy)]
struct Reached {
    stage: Stage,
    since: Moment,
}

impl Stages {
    /// Logs and counts the transitions of models that have changed.
    pub(crate) fn follow(
        &mut self,
        changed: &BTreeSet<ModelName>,
        machines: &Machines,
        now: Moment,
    ) {
        for name in changed {
            let before = self.reached.remove(name).unwrap_or_default();
            for reached in before.values() {
                *self.counts.entry(reached.stage).or_default() -= 1;
            }
            let mut reached = BTreeMap::new();
            for model in machines.models_of(name) {
                let (digest, stage) = (model.key().digest, model.stage());
                let before = before.get(&digest).copied();
                let before = before.unwrap_or(Reached { stage: Stage::New, since: now });
                let since = if before.stage == stage { before.since } else { now };
                if before.stage != stage {
                    report_transition(model, before, now);
                }
                *self.counts.entry(stage).or_default() += 1;
                reached.insert(digest, Reached { stage, since });
            }
            if !reached.is_empty() {
                self.reached.insert(name.clone(), reached);
            }
        }
        metrics::state(&self.counts);
        metrics::engines(machines.engines());
        metrics::dropped(machines.counts());
    }
}

fn report_transition(model: &ModelMachine, before: Reached, now: Moment) {
    metrics::moved(before.stage, model.stage(), now.since(before.since));
    let cause = model.history().last().map(|transition| transition.cause.clone());
    tracing::info!(
        model.name = %model.key().name,
        model.digest = %model.key().digest,
        state.from = %before.stage,
        state.to = %model.stage(),
        cause = cause.as_deref().unwrap_or_default(),
        "a model has changed its state"
    );
}
