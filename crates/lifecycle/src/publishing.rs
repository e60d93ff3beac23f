//! The outside view: the routing table, the snapshot, logs, metrics and traces of
//! transitions.

pub(crate) mod bring_ups;
pub(crate) mod routing;
pub(crate) mod sources;
mod stages;
mod steps;
mod views;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use outrigger_core::ModelName;
use tokio::sync::watch;

use self::{bring_ups::BringUps, routing::Routing, sources::Sources, stages::Stages, steps::Steps};
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
    preloaded: bool,
}

impl Publishing {
    /// Subscribes to the snapshot, now and after every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// Logs, counts and traces the changes of versions.
    pub(crate) fn follow(&mut self, changed: &BTreeSet<ModelName>, sources: &Sources<'_>) {
        let Sources { world, machines, now, .. } = *sources;
        self.stages.follow(changed, machines, now);
        self.bring_ups.follow(changed, machines, &world.config.tracer);
        self.steps.follow(changed, machines, now);
    }

    /// Publishes the snapshot if it has changed.
    pub(crate) fn show(&mut self, changed: &BTreeSet<ModelName>, sources: &Sources<'_>) {
        let engines = views::engines(sources.machines, &sources.world.engines);
        let mut next = Snapshot { engines, ..Snapshot::default() };
        // The start is complete only when an engine answers.
        let answers = next.an_engine_answers();
        self.preloaded |= answers && sources.machines.preloads_settled(sources.now);
        next.ready = self.preloaded && answers;
        let last = self.snapshot.borrow().clone();
        let views = changed.iter().map(|name| (name, views::model(name, sources, &self.routing)));
        let views: Vec<_> = views
            .filter(|(name, view)| last.models.get(*name).map(|it| &**it) != view.as_ref())
            .collect();
        let steps = self.steps.oldest().into_iter();
        let steps: BTreeMap<_, _> =
            steps.map(|(step, since)| (step, sources.clock.instant(since))).collect();
        let others =
            next.engines == last.engines && next.ready == last.ready && steps == last.steps;
        if views.is_empty() && others {
            return;
        }
        let mut models = last.models.clone();
        for (name, view) in views {
            match view {
                Some(view) => drop(models.insert(name.clone(), Arc::new(view))),
                None => drop(models.remove(name)),
            }
        }
        self.snapshot.send_replace(Arc::new(Snapshot { models, steps, ..next }));
    }
}
