//! The environment of the jobs: store, registries, engines and configuration.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use outrigger_core::{Digest, Failure, Reason};
use outrigger_oci::{Client, signature::Policy};
use outrigger_store::Store;

use crate::{
    blocking,
    config::Config,
    engines::Engines,
    flights::Flights,
    journal::{Durable, Numbered},
    names::Names,
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
    /// Held during a write of the journal.
    journal: Mutex<()>,
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
        }
    }

    /// Whether the files of `digest` must stay.
    pub(crate) fn uses(&self, digest: &Digest) -> bool {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).contains(digest)
    }

    /// Sets that the files of these digests must stay.
    pub(crate) fn keep(&self, digests: impl IntoIterator<Item = Digest>) {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).extend(digests);
    }

    /// Sets that the files of these digests need not stay.
    pub(crate) fn release(&self, digests: impl IntoIterator<Item = Digest>) {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        for digest in digests {
            in_use.remove(&digest);
        }
    }

    /// Writes the latest state to the journal and returns its number. Blocks.
    ///
    /// # Errors
    /// The write failed, and was logged.
    pub(crate) fn write_journal(&self) -> Result<u64, ()> {
        // One write at a time, so that none overwrites a later one.
        let _turn = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let Numbered { number, record, crashes, canaries } = self.durable.latest();
        let journal = self.store.journal();
        let written = journal.save(&record).and_then(|()| journal.save_crashes(&crashes));
        let written = written.and_then(|()| match &canaries {
            Some(canaries) => journal.save_canaries(&**canaries),
            None => Ok(()),
        });
        self.durable.end(number, written.is_ok());
        if let Err(error) = &written {
            tracing::warn!(
                error = %error,
                "cannot write the journal, which is tried again: until then changes take effect \
                 that a restart loses"
            );
        }
        if let Err(error) = self.store.record_seen(&record) {
            tracing::warn!(error = %error, "cannot record the tags of a model beside its files");
        }
        written.map(|()| number).map_err(drop)
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
