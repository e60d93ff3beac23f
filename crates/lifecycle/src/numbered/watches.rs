//! The tasks that poll directories.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outrigger_core::ModelName;
use outrigger_store::Store;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};

use super::{Turn, Versions};
use crate::blocking::blocking;

/// The limit of changes that wait to be handled; a task with a further one waits.
const CHANGES: usize = 64;

/// The tasks that poll the directories of models, one for each.
pub(crate) struct Watches {
    tasks: JoinSet<()>,
    running: BTreeMap<ModelName, (Arc<Versions>, AbortHandle)>,
    changes: mpsc::Receiver<ModelName>,
    report: mpsc::Sender<ModelName>,
}

impl Watches {
    /// No directory is polled yet.
    pub(crate) fn new() -> Self {
        let (report, changes) = mpsc::channel(CHANGES);
        Self { tasks: JoinSet::new(), running: BTreeMap::new(), changes, report }
    }

    /// Polls these directories, and no others, in every `period`.
    pub(crate) fn follow<'a>(
        &mut self,
        directories: impl Iterator<Item = (&'a ModelName, &'a Arc<Versions>)>,
        store: &Store,
        period: Duration,
    ) {
        let mut before = std::mem::take(&mut self.running);
        for (name, versions) in directories {
            let known = before.remove_entry(name);
            let entry = match known {
                Some((_, known)) if Arc::ptr_eq(&known.0, versions) => known,
                other => {
                    before.extend(other);
                    let report = self.report.clone();
                    let (store, versions) = (store.clone(), Arc::clone(versions));
                    let task = watch(name.clone(), Arc::clone(&versions), store, period, report);
                    (versions, self.tasks.spawn(task))
                }
            };
            self.running.insert(name.clone(), entry);
        }
        before.values().for_each(|(_, task)| task.abort());
        while self.tasks.try_join_next().is_some() {}
    }

    /// Waits for a change in the directory of a model. Cancel safe.
    pub(crate) async fn changed(&mut self) -> Option<ModelName> {
        self.changes.recv().await
    }
}

/// Polls the directory of the model `name` until nobody waits for `report`s.
async fn watch(
    name: ModelName,
    versions: Arc<Versions>,
    store: Store,
    period: Duration,
    report: mpsc::Sender<ModelName>,
) {
    let directory = store.directory(&versions.directory.path);
    let mut failing = versions.failing.subscribe();
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let turn = tokio::select! {
            _ = ticks.tick() => Turn::Due,
            Ok(()) = failing.changed() => Turn::Early,
        };
        let (directory, polled) = (directory.clone(), Arc::clone(&versions));
        let listing = blocking(move || polled.poll(&directory, turn)).await;
        let Some(listing) = listing else { continue };
        if let Some(failure) = &listing.failure {
            tracing::warn!(
                model.name = %name, reason = %failure.reason, error = %failure.message,
                "the directory of a model's versions cannot be used; what it held stays in service"
            );
        }
        versions.state.send_replace(Some(Arc::new(listing)));
        if report.send(name.clone()).await.is_err() {
            return;
        }
    }
}
