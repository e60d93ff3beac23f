//! Which servables are in memory, and the steps that get them there.
//!
//! The manager is told, a model at a time, which versions are aspired. At every
//! tick it forgets servables that are gone and no longer aspired, takes in what
//! it was told, and starts at most one load or unload over all models: unloads
//! before loads, higher versions first. A version that is aspired already is
//! never loaded again, even when it has failed.
//!
//! The behaviour is that of TensorFlow Serving 2.20, including that publishing
//! a new set of servables waits, under the manager's lock, for the requests that
//! began with the old set.

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

/// How the manager loads.
#[derive(Debug, Clone)]
pub struct Config {
    /// Loads at once; zero loads within the tick.
    pub load_threads: usize,
    /// Unloads at once; zero unloads within the tick.
    pub unload_threads: usize,
    /// Further tries after a load that failed.
    pub max_retries: u32,
    /// Pause before each of them.
    pub retry_interval: Duration,
}

/// One aspired version of a model.
pub struct Aspired<S> {
    /// The version.
    pub version: i64,
    /// Loads it, if it has to be.
    pub loader: Arc<dyn Loader<S>>,
}

impl<S> fmt::Debug for Aspired<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aspired").field("version", &self.version).finish_non_exhaustive()
    }
}

type Managed<S> = BTreeMap<ServableId, Harness<S>>;

/// The manager; cheap to clone.
pub struct Manager<S>(Arc<Inner<S>>);

struct Inner<S> {
    config: Config,
    /// The newest list of aspired versions of each model, until a tick takes it.
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
    /// A manager of nothing yet. It acts only when [`Manager::tick`] is called.
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

    /// Where changes of state are told.
    pub fn bus(&self) -> &Bus {
        &self.0.bus
    }

    /// Tells which versions of a model should be loaded. Takes effect at the
    /// next tick; a list not taken in yet is replaced.
    pub fn aspire(&self, name: &str, versions: Vec<Aspired<S>>) {
        lock(&self.0.pending).insert(name.to_owned(), versions);
    }

    /// Loads at once from now on.
    pub fn set_load_threads(&self, threads: usize) {
        self.0.loads.resize(threads);
    }

    /// The servable of this version, or the highest one that is available.
    pub fn handle(&self, name: &str, version: Option<i64>) -> Option<Handle<S>> {
        self.0.serving.handle(name, version)
    }

    /// One step. Blocks while a load or unload runs if these have no threads.
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
    /// Forgets what is not in memory and no longer aspired.
    fn flush(&self) {
        lock(&self.managed).retain(|_, harness| harness.aspired || !harness.phase.is_settled());
    }

    /// Takes in the lists that can be: one that aspires to a version which is
    /// still on its way out waits until that is gone.
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

    /// Runs on a thread for loads.
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

    /// Estimates what the load will need. With its files gone this holds up
    /// every other load and unload for as long as the retries take, for it is
    /// done under the lock.
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

    /// Runs on a thread for unloads.
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

    /// Publishes what is ready, and waits for the requests that began before.
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

/// Locks; a panic elsewhere does not make the data wrong, since every change is
/// one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
