//! The environment of the jobs: store, registries, engines and configuration.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use outrigger_core::{Digest, Failure, Reason, machines::Legacy};
use outrigger_oci::{Client, signature::Policy};
use outrigger_store::{Desired, Promoted, Record, Store};
use outrigger_trials::CanaryRecord;
use tokio::sync::Semaphore;

use crate::{blocking, config::Config, engines::Engines, names::Names};

/// Everything outside the machines.
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) names: Arc<ArcSwap<Names>>,
    pub(crate) signatures: Policy,
    pub(crate) client: Client,
    pub(crate) store: Store,
    pub(crate) engines: Engines,
    /// Digests whose files must stay. Set before the start of any job that may need them.
    pub(crate) in_use: ArcSwap<BTreeSet<Digest>>,
    pub(crate) pulls: Semaphore,
    journal: Mutex<u64>,
    canaries: Mutex<u64>,
}

impl World {
    pub(crate) fn new(
        config: Config,
        (names, signatures): (Arc<ArcSwap<Names>>, Policy),
        client: Client,
        store: Store,
        engines: Engines,
    ) -> Self {
        Self {
            pulls: Semaphore::new(config.pull_concurrency.max(1)),
            config,
            names,
            signatures,
            client,
            store,
            engines,
            in_use: ArcSwap::default(),
            journal: Mutex::default(),
            canaries: Mutex::default(),
        }
    }

    /// Whether the files of `digest` must stay.
    pub(crate) fn uses(&self, digest: &Digest) -> bool {
        self.in_use.load().contains(digest)
    }

    /// Writes the state `number` of the journal, unless a later one was written. Blocks.
    pub(crate) fn write_journal(&self, number: u64, legacy: &Legacy) {
        let mut written = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if number <= *written {
            return;
        }
        match self.store.journal().save(&record(legacy)) {
            Ok(()) => *written = number,
            // Without it the next start loads more than necessary.
            Err(error) => tracing::warn!(error = %error, "cannot write the journal"),
        }
    }
}

impl World {
    /// Writes the state `number` of the canaries, unless a later one was written. Blocks.
    pub(crate) fn write_canaries(&self, number: u64, record: &CanaryRecord) {
        let mut written = self.canaries.lock().unwrap_or_else(PoisonError::into_inner);
        if number <= *written {
            return;
        }
        match self.store.journal().save_canaries(record) {
            Ok(()) => *written = number,
            // Without it the next start begins their trials anew.
            Err(error) => tracing::warn!(error = %error, "cannot write the canaries' journal"),
        }
    }
}

fn record(legacy: &Legacy) -> Record {
    let mut record = Record::default();
    for (key, digest) in &legacy.tags {
        let tags = record.tags.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), *digest);
    }
    let desired = legacy.loaded.iter();
    for (key, digest) in &legacy.rejected {
        let tags = record.rejected.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), *digest);
    }
    for (key, (named, promoted)) in &legacy.promoted {
        let tags = record.promoted.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), Promoted { named: *named, promoted: *promoted });
    }
    record.desired = desired
        .map(|(key, loaded)| Desired {
            key: key.clone(),
            servable: loaded.id.clone(),
            engine: loaded.engine.clone(),
        })
        .collect();
    record
}

/// Runs `work` with the world on a thread where it may block.
pub(crate) fn blocking<T, F>(
    world: &Arc<World>,
    work: F,
) -> impl Future<Output = T> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce(&World) -> T + Send + 'static,
{
    let world = Arc::clone(world);
    blocking::blocking(move || work(&world))
}

/// Converts an error of the store.
pub(crate) fn store_failure(error: &outrigger_store::Error) -> Failure {
    Failure::because(error.reason(), error)
}

/// The failure of a job that panicked: a defect.
pub(crate) fn defect() -> Failure {
    Failure::new(Reason::Internal, "a task ended unexpectedly")
}
