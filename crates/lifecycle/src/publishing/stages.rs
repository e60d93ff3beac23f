//! The stages of versions; each transition is logged and counted once.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_core::{Digest, ModelName, Moment, Stage, machines::Machines, model::ModelMachine};

use outrigger_trials::Reports;

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
    /// Follows the models that have changed. Their transitions are logged and counted by `reports`.
    pub(crate) fn follow(
        &mut self,
        changed: &BTreeSet<ModelName>,
        machines: &Machines,
        now: Moment,
        reports: &mut Reports,
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
                    report_transition(model, before, now, reports);
                }
                *self.counts.entry(stage).or_default() += 1;
                reached.insert(digest, Reached { stage, since });
            }
            if !reached.is_empty() {
                self.reached.insert(name.clone(), reached);
            }
        }
    }

    /// Sets the gauges of versions by stage, and those of the engines.
    pub(crate) fn show(&self, machines: &Machines) {
        metrics::state(&self.counts);
        metrics::engines(machines.engines());
        metrics::dropped(machines.counts());
    }
}

fn report_transition(model: &ModelMachine, before: Reached, now: Moment, reports: &mut Reports) {
    let key = model.key().clone();
    let stage = model.stage();
    let cause = model.history().last().map(|transition| transition.cause.clone());
    reports.add(move || {
        metrics::moved(before.stage, stage, now.since(before.since));
        tracing::info!(
            model.name = %key.name,
            model.digest = %key.digest,
            state.from = %before.stage,
            state.to = %stage,
            cause = cause.as_deref().unwrap_or_default(),
            "a model has changed its state"
        );
    });
}
