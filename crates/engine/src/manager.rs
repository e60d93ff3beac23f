//! Loads and unloads servables so that the aspired versions are in memory.
//!
//! For each model the manager gets the list of aspired versions. At every tick it drops
//! servables that are out of memory and no longer aspired, takes over new lists, and
//! starts at most one load or unload over all models: unloads before loads, higher
//! versions first. A version that stays aspired is never loaded again, even if it has
//! failed.
//!
//! The behaviour is that of TensorFlow Serving 2.20. In particular, publishing a new set
//! of servables waits, under the manager's lock, for the requests that started with the
//! old set.

mod executor;
mod harness;
mod policy;
mod serving;
mod state;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::{loader::Loader, servable::ServableId, status::Status};

use executor::Executor;
use harness::{Harness, Phase};
use policy::Action;
use serving::Serving;

pub use serving::Handle;
pub use state::{Bus, Monitor, State, VersionState};

/// Time between two ticks.
pub const TICK: Duration = Duration::from_millis(100);

/// Settings of loads and unloads.
#[derive(Debug, Clone)]
pub struct Config {
    /// Concurrent loads; zero loads within the tick.
    pub load_threads: usize,
    /// Concurrent unloads; zero unloads within the tick.
    pub unload_threads: usize,
    /// Retries after a failed load.
    pub max_retries: u32,
    /// Pause before each retry.
    pub retry_interval: Duration,
}

/// One aspired version of a model.
pub struct Aspired<S> {
    /// The version.
    pub version: i64,
    /// Loads the version if it is not in memory.
    pub loader: Arc<dyn Loader<S>>,
}

impl<S> fmt::Debug for Aspired<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aspired").field("version", &self.version).finish_non_exhaustive()
    }
}

type Managed<S> = BTreeMap<ServableId, Harness<S>>;

/// The manager; a clone is a handle to the same manager.
pub struct Manager<S>(Arc<Inner<S>>);

struct Inner<S> {
    config: Config,
    /// The last list of aspired versions of each model that no tick has taken over yet.
    pending: Mutex<BTreeMap<String, Vec<Aspired<S>>>>,
    managed: Mutex<Managed<S>>,
    serving: Serving<S>,
    bus: Bus,
    loads: Executor,
    unloads: Executor,
}

impl<S> Clone for Manager<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for Manager<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl<S: Send + Sync + 'static> Manager<S> {
    /// A manager without servables. It acts only when [`Manager::tick`] is called.
    pub fn new(config: Config) -> Self {
        Self(Arc::new(Inner {
            loads: Executor::new("load", config.load_threads),
            unloads: Executor::new("unload", config.unload_threads),
            config,
            pending: Mutex::default(),
            managed: Mutex::default(),
            serving: Serving::default(),
            bus: Bus::default(),
        }))
    }

    /// The bus on which changes of state are published.
    pub fn bus(&self) -> &Bus {
        &self.0.bus
    }

    /// Sets the versions of a model that should be loaded. Takes effect at the next tick;
    /// replaces a list that no tick has taken over yet.
    pub fn aspire(&self, name: &str, versions: Vec<Aspired<S>>) {
        lock(&self.0.pending).insert(name.to_owned(), versions);
    }

    /// Changes the number of concurrent loads.
    pub fn set_load_threads(&self, threads: usize) {
        self.0.loads.resize(threads);
    }

    /// The servable of this version, or that of the highest available version.
    pub fn handle(&self, name: &str, version: Option<i64>) -> Option<Handle<S>> {
        self.0.serving.handle(name, version)
    }

    /// Performs one step. Without load or unload threads it blocks while a load or unload
    /// runs.
    pub fn tick(&self) {
        self.0.flush();
        self.0.take_pending();
        let action = policy::next_action(&lock(&self.0.managed));
        match action {
            Some(Action::Load(id)) => self.start_load(id),
            Some(Action::Unload(id)) => self.start_unload(id),
            None => {}
        }
    }

    fn start_load(&self, id: ServableId) {
        if let Some(harness) = lock(&self.0.managed).get_mut(&id) {
            harness.phase = Phase::LoadRequested;
        }
        let inner = Arc::clone(&self.0);
        self.0.loads.run(Box::new(move || inner.load(&id)));
    }

    fn start_unload(&self, id: ServableId) {
        if let Some(harness) = lock(&self.0.managed).get_mut(&id) {
            harness.phase = Phase::UnloadRequested;
        }
        let inner = Arc::clone(&self.0);
        self.0.unloads.run(Box::new(move || inner.unload(&id)));
    }
}

impl<S: Send + Sync + 'static> Inner<S> {
    /// Drops servables that are not in memory and no longer aspired.
    fn flush(&self) {
        lock(&self.managed).retain(|_, harness| harness.aspired || !harness.phase.is_settled());
    }

    /// Takes over the pending lists. A list waits as long as one of its versions is still
    /// being unloaded.
    fn take_pending(&self) {
        let mut managed = lock(&self.managed);
        lock(&self.pending).retain(|name, versions| {
            let wait = versions.iter().any(|aspired| {
                let id = ServableId { name: name.clone(), version: aspired.version };
                managed.get(&id).is_some_and(|harness| !harness.aspired)
            });
            if !wait {
                self.take(&mut managed, name, versions);
            }
            wait
        });
    }

    fn take(&self, managed: &mut Managed<S>, name: &str, versions: &mut Vec<Aspired<S>>) {
        let next: BTreeSet<i64> = versions.iter().map(|aspired| aspired.version).collect();
        for (id, harness) in managed.iter_mut().filter(|(id, _)| id.name == name) {
            if !next.contains(&id.version) {
                harness.aspired = false;
            }
        }
        for Aspired { version, loader } in versions.drain(..) {
            let id = ServableId { name: name.to_owned(), version };
            if !managed.contains_key(&id) {
                managed.insert(id.clone(), Harness::new(loader));
                self.publish(&id, VersionState::of(State::Start));
            }
        }
    }

    /// Loads a servable; runs on a load thread.
    fn load(&self, id: &ServableId) {
        let Some(loader) = self.reserve(id) else { return };
        self.publish(id, VersionState::of(State::Loading));
        let loaded = self.retry(id, || self.wanted(id), || loader.load());
        let mut managed = lock(&self.managed);
        let Some(harness) = managed.get_mut(id) else { return };
        match loaded {
            Ok(servable) if harness.aspired => {
                harness.servable = Some(Arc::new(servable));
                harness.phase = Phase::Ready;
                self.serve(&managed);
                self.publish(id, VersionState::of(State::Available));
            }
            Ok(servable) => {
                loader.unload(servable);
                let cancelled = "Loading of servable cancelled";
                self.fail(id, harness, Status::new(tonic::Code::Cancelled, cancelled));
            }
            Err(status) => self.fail(id, harness, status),
        }
    }

    /// Estimates the memory of a load under the manager's lock. If the files are gone,
    /// the retries delay every other load and unload, as in TensorFlow Serving.
    fn reserve(&self, id: &ServableId) -> Option<Arc<dyn Loader<S>>> {
        let mut managed = lock(&self.managed);
        let harness = managed.get_mut(id)?;
        let loader = Arc::clone(&harness.loader);
        match self.retry(id, || true, || loader.estimate()) {
            Ok(_) => {
                harness.phase = Phase::Loading;
                Some(loader)
            }
            Err(status) => {
                let message = format!(
                    "Error while attempting to reserve resources to load servable {id}: {}",
                    status.message
                );
                self.fail(id, harness, Status::new(status.code, message));
                None
            }
        }
    }

    fn retry<T>(
        &self,
        id: &ServableId,
        wanted: impl Fn() -> bool,
        attempt: impl Fn() -> Result<T, Status>,
    ) -> Result<T, Status> {
        for retry in 0..self.config.max_retries {
            match attempt() {
                Err(status) if wanted() => {
                    tracing::warn!(model.name = id.name, model.version = id.version, retry, %status, "loading failed");
                    std::thread::sleep(self.config.retry_interval);
                }
                outcome => return outcome,
            }
        }
        attempt()
    }

    fn wanted(&self, id: &ServableId) -> bool {
        lock(&self.managed).get(id).is_some_and(|harness| harness.aspired)
    }

    fn fail(&self, id: &ServableId, harness: &mut Harness<S>, status: Status) {
        harness.phase = Phase::Failed;
        self.publish(id, VersionState { state: State::End, status: Err(status) });
    }

    /// Unloads a servable; runs on an unload thread.
    fn unload(&self, id: &ServableId) {
        let (loader, servable) = {
            let mut managed = lock(&self.managed);
            let Some(harness) = managed.get_mut(id) else { return };
            harness.phase = Phase::Unloading;
            let servable = harness.servable.take();
            let loader = Arc::clone(&harness.loader);
            self.publish(id, VersionState::of(State::Unloading));
            self.serve(&managed);
            (loader, servable)
        };
        if let Some(servable) = servable.and_then(Arc::into_inner) {
            loader.unload(servable);
        }
        if let Some(harness) = lock(&self.managed).get_mut(id) {
            harness.phase = Phase::Unloaded;
            self.publish(id, VersionState::of(State::End));
        }
    }

    /// Publishes the ready servables, and waits for the requests that started with the
    /// previous set.
    fn serve(&self, managed: &Managed<S>) {
        let ready = managed.iter().filter_map(|(id, harness)| {
            let servable = harness.servable.as_ref().filter(|_| harness.phase == Phase::Ready)?;
            Some((id.clone(), Arc::clone(servable)))
        });
        self.serving.publish(ready);
    }

    fn publish(&self, id: &ServableId, state: VersionState) {
        match &state.status {
            Ok(()) => {
                tracing::info!(model.name = id.name, model.version = id.version, state.to = ?state.state, "servable changed")
            }
            Err(status) => {
                tracing::warn!(model.name = id.name, model.version = id.version, state.to = ?state.state, %status, "servable failed")
            }
        }
        self.bus.publish(id, &state);
    }
}

/// Locks, ignoring poison: every change is a single assignment, so a panic leaves no
/// inconsistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
