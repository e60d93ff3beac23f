//! The outside view: the routing table, the snapshot, logs, metrics and traces of
//! transitions.

pub(crate) mod bring_ups;
pub(crate) mod inputs;
pub(crate) mod routing;
mod stages;
mod steps;
mod views;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use outrigger_core::{ModelName, machines::Machines};
use outrigger_trials::Reports;
use tokio::sync::watch;

use self::{bring_ups::BringUps, inputs::Inputs, routing::Routing, stages::Stages, steps::Steps};
use crate::snapshot::Snapshot;

/// The outside view as last published. Each step processes only the models that have changed, so
/// that no model can slow another.
#[derive(Default)]
pub(crate) struct Publishing {
    pub(crate) routing: Routing,
    pub(crate) bring_ups: BringUps,
    snapshot: watch::Sender<Arc<Snapshot>>,
    stages: Stages,
    steps: Steps,
    /// Log lines and metrics for the time when the routes are in force.
    pub(crate) reports: Reports,
    preloaded: bool,
    /// A preloaded model that is known not to have settled yet.
    unsettled: Option<ModelName>,
    /// The number of configurations applied since the start.
    pub(crate) configurations: u64,
}

impl Publishing {
    /// Subscribes to the snapshot, now and after every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// Follows the versions of these models, after each event, so that no transition is missed.
    pub(crate) fn follow(&mut self, changed: &BTreeSet<ModelName>, inputs: &Inputs<'_>) {
        let Inputs { world, machines, now, .. } = *inputs;
        self.stages.follow(changed, machines, now, &mut self.reports);
        self.bring_ups.follow(changed, machines, &world.config.tracer);
        self.steps.follow(changed, machines, now);
    }

    /// Whether all preloaded models have settled. Others are examined only when a model settles.
    fn have_settled(&mut self, inputs: &Inputs<'_>) -> bool {
        let Inputs { machines, now, .. } = *inputs;
        let waits = |name: &ModelName| !machines.has_settled(name, now);
        if self.unsettled.as_ref().is_some_and(waits) {
            return false;
        }
        self.unsettled = machines.first_unsettled(self.unsettled.as_ref(), now);
        self.unsettled.is_none()
    }

    /// Logs, counts and traces the transitions that were followed. Their routes must be in force.
    pub(crate) fn report(&mut self, machines: &Machines) {
        self.reports.emit();
        self.stages.show(machines);
        self.bring_ups.show();
    }

    /// Publishes the snapshot if it has changed.
    pub(crate) fn show(&mut self, changed: &BTreeSet<ModelName>, inputs: &Inputs<'_>) {
        let engines = views::engines(inputs.machines, &inputs.world.engines);
        let last = self.snapshot.borrow().clone();
        let configurations = self.configurations;
        let mut next = Snapshot { engines, configurations, ..(*last).clone() };
        // The start is complete only when an engine answers.
        let answers = next.an_engine_answers();
        self.preloaded = self.preloaded || answers && self.have_settled(inputs);
        next.ready = self.preloaded && answers;
        let views = changed.iter().map(|name| (name, views::model(name, inputs, &self.routing)));
        let views: Vec<_> = views
            .filter(|(name, view)| last.models.get(name).map(|it| &**it) != view.as_ref())
            .collect();
        let steps = self.steps.oldest().into_iter();
        let steps: BTreeMap<_, _> =
            steps.map(|(step, since)| (step, inputs.clock.instant(since))).collect();
        let others = (&next.engines, next.ready, configurations, &steps)
            == (&last.engines, last.ready, last.configurations, &last.steps);
        if views.is_empty() && others {
            return;
        }
        next.steps = steps;
        for (name, view) in views {
            match view {
                Some(view) => next.models.insert(name.clone(), Arc::new(view)),
                None => next.models.remove(name),
            }
        }
        self.snapshot.send_replace(Arc::new(next));
    }
}
