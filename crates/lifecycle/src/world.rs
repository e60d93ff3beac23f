//! The environment of the jobs: store, registries, engines and configuration.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use outrigger_core::{Digest, Failure, Reason};
use outrigger_oci::{Client, signature::Policy};
use outrigger_store::Store;
use outrigger_trials::CanaryRecord;

use crate::{
    blocking, config::Config, engines::Engines, flights::Flights, journal::Durable, names::Names,
    places::PullPlaces,
};

/// Everything outside the machines.
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) names: Arc<ArcSwap<Names>>,
    pub(crate) signatures: Policy,
    pub(crate) client: Client,
    pub(crate) store: Store,
    pub(crate) engines: Engines,
    /// Digests whose files must stay. Set before the start of any job that may need them.
    in_use: Mutex<BTreeSet<Digest>>,
    pub(crate) durable: Durable,
    pub(crate) flights: Flights,
    pub(crate) pulls: PullPlaces,
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
            pulls: PullPlaces::new(config.pull_concurrency),
            config,
            names,
            signatures,
            client,
            store,
            engines,
            in_use: Mutex::default(),
            durable: Durable::default(),
            flights: Flights::default(),
            journal: Mutex::default(),
            canaries: Mutex::default(),
        }
    }

    /// Whether the files of `digest` must stay.
    pub(crate) fn uses(&self, digest: &Digest) -> bool {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).contains(digest)
    }

    /// Sets whether the files of these digests must stay.
    pub(crate) fn set_in_use(&self, changed: Vec<(Digest, bool)>) {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        for (digest, is_used) in changed {
            match is_used {
                true => in_use.insert(digest),
                false => in_use.remove(&digest),
            };
        }
    }

    /// Writes the latest state of the machines, unless `number` or a later one was written. Blocks.
    pub(crate) fn write_journal(&self, number: u64) {
        let mut written = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if number <= *written {
            return;
        }
        let (latest, record, crashes) = self.durable.record();
        let journal = self.store.journal();
        match journal.save(&record).and_then(|()| journal.save_crashes(&crashes)) {
            Ok(()) => *written = latest,
            // Without it the next start loads more than necessary.
            Err(error) => tracing::warn!(error = %error, "cannot write the journal"),
        }
        if let Err(error) = self.store.record_seen(&record) {
            tracing::warn!(error = %error, "cannot record the tags of a model beside its files");
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

/// The failure of a job that panicked: a defect.
pub(crate) fn defect() -> Failure {
    Failure::new(Reason::Internal, "a task ended unexpectedly")
}
