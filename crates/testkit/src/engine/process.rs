//! One run of the engine: its configuration and the states of its versions.
//!
//! It imitates the behaviour of TensorFlow Serving that clients can observe: discovery by polling,
//! loading before unloading, states that remain after the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use outrigger_proto::tensorflow::{SignatureDef, serving::model_version_status::State};
use tokio::{sync::watch, task::JoinSet};
use tonic::Code;

use super::script::{Load, Loading, Script, Violation, lock};
use crate::saved_model;

/// The interval at which base paths are listed; a real engine's is a second.
const POLL: Duration = Duration::from_millis(5);

/// The states of all versions seen, by name and version.
pub type View = BTreeMap<(String, i64), State>;

/// The configuration of one servable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Configured {
    pub(super) base_path: PathBuf,
    /// The versions to load; `None` means the highest one found.
    pub(super) versions: Option<BTreeSet<i64>>,
}

pub(super) type Failure = (Code, String);
pub(super) type Signatures = BTreeMap<String, SignatureDef>;

/// A version that has been seen.
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) error: Option<Failure>,
    pub(super) signatures: Arc<Signatures>,
    aspired: bool,
    in_flight: usize,
}

pub(super) struct Process {
    pub(super) script: Arc<Script>,
    /// The lock that a reload holds from start to end.
    pub(super) reloading: tokio::sync::Mutex<()>,
    manager: Mutex<Manager>,
    view: watch::Sender<View>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Manager {
    config: BTreeMap<String, Configured>,
    entries: BTreeMap<(String, i64), Entry>,
}

impl Process {
    /// Starts an engine with an empty configuration. To be called within its runtime.
    pub(super) fn start(script: Arc<Script>, view: watch::Sender<View>) -> Arc<Self> {
        let process = Arc::new(Self {
            script,
            reloading: tokio::sync::Mutex::new(()),
            manager: Mutex::default(),
            view,
            tasks: Mutex::default(),
        });
        process.view.send_replace(View::new());
        let poller = Arc::clone(&process);
        process.spawn(async move {
            let mut ticks = tokio::time::interval(POLL);
            loop {
                ticks.tick().await;
                poller.script.thawed().await;
                poller.poll();
            }
        });
        process
    }

    /// Runs `task` until the engine ends, independent of the caller.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.tasks).spawn(task);
    }

    pub(super) fn watch(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// Applies a configuration; returns the names that the previous one did not have.
    pub(super) fn configure(&self, config: BTreeMap<String, Configured>) -> BTreeSet<String> {
        self.update(|manager| {
            let gone: Vec<_> =
                manager.config.keys().filter(|name| !config.contains_key(*name)).cloned().collect();
            gone.iter().for_each(|name| drop(manager.aspire(name, &BTreeMap::new())));
            let new = config.keys().filter(|name| !manager.config.contains_key(*name)).cloned();
            let new: BTreeSet<String> = new.collect();
            let seen = new.iter().filter(|name| manager.of(name).next().is_some());
            seen.for_each(|name| self.script.violate(Violation::NameReadded(name.clone())));
            manager.config = config;
            new
        })
    }

    /// Maps all known versions of a name, highest version first.
    pub(super) fn versions<T>(&self, name: &str, read: impl Fn(i64, &Entry) -> T) -> Vec<T> {
        let manager = lock(&self.manager);
        manager.of(name).rev().map(|((_, version), entry)| read(*version, entry)).collect()
    }

    /// Starts a call on an AVAILABLE version; without a version, on the highest one.
    pub(super) fn enter(self: &Arc<Self>, name: &str, version: Option<i64>) -> Option<InFlight> {
        self.update(|manager| {
            let serves = |entry: &Entry| entry.state == State::Available;
            let mut entries = manager.of_mut(name);
            let (key, entry) = entries.rfind(|((_, known), entry)| {
                version.is_none_or(|version| version == *known) && serves(entry)
            })?;
            entry.in_flight += 1;
            let signatures = Arc::clone(&entry.signatures);
            Some(InFlight { process: Arc::clone(self), key: key.clone(), signatures })
        })
    }

    /// Lists every base path once. If one cannot be listed, the poll ends for all, as in TensorFlow
    /// Serving.
    fn poll(self: &Arc<Self>) {
        let config = lock(&self.manager).config.clone();
        let mut aspired = BTreeMap::new();
        for (name, configured) in &config {
            match list(configured) {
                Ok(versions) => aspired.insert(name.clone(), versions),
                Err(_) => {
                    let path = configured.base_path.clone();
                    return self.script.violate(Violation::MissingBasePath(path));
                }
            };
        }
        let loads = self.update(|manager| {
            // A reload may have changed the configuration meanwhile; names that it removed are left
            // out.
            aspired.retain(|name, _| manager.config.get(name) == config.get(name));
            let loads = aspired.iter().flat_map(|(name, versions)| manager.aspire(name, versions));
            loads.collect::<Vec<_>>()
        });
        for (load, reused) in loads {
            if reused {
                self.script.violate(Violation::VersionReused(load.name.clone(), load.version));
            }
            self.spawn(Arc::clone(self).load(load));
        }
    }

    async fn load(self: Arc<Self>, load: Load) {
        let key = (load.name.clone(), load.version);
        self.update(|manager| manager.entry(&key).state = State::Loading);
        let outcome = match self.script.loading(&load) {
            Loading::Normal => self.read(&load.path),
            Loading::Held(gate) => {
                gate.pass().await;
                self.read(&load.path)
            }
            Loading::Fails(code, message) => Err((code, message)),
        };
        self.update(|manager| {
            let entry = manager.entry(&key);
            let cancelled = || (Code::Cancelled, "Loading of servable cancelled".to_owned());
            match outcome {
                Ok(signatures) if entry.aspired => {
                    entry.signatures = Arc::new(signatures);
                    entry.state = State::Available;
                }
                Ok(_) => entry.end(Some(cancelled())),
                Err(error) => entry.end(Some(error)),
            }
            manager.settle(&key.0);
        });
    }

    fn read(&self, path: &Path) -> Result<Signatures, Failure> {
        if !path.exists() {
            self.script.violate(Violation::Vanished(path.to_owned()));
        }
        let Ok(bytes) = fs::read(path.join("saved_model.pb")) else {
            let message = format!(
                "Could not find SavedModel .pb or .pbtxt at supplied export directory path: {}",
                path.display()
            );
            return Err((Code::NotFound, message));
        };
        saved_model::signatures(&bytes)
            .ok_or_else(|| (Code::OutOfRange, "Read less bytes than requested".to_owned()))
    }

    /// Changes the state and publishes it.
    fn update<T>(&self, change: impl FnOnce(&mut Manager) -> T) -> T {
        let mut manager = lock(&self.manager);
        let result = change(&mut manager);
        let states = manager.entries.iter().map(|(key, entry)| (key.clone(), entry.state));
        let view = states.collect::<View>();
        self.view.send_if_modified(|shown| std::mem::replace(shown, view.clone()) != view);
        result
    }
}

/// The versions under a base path that the policy selects, with their directories.
fn list(configured: &Configured) -> io::Result<BTreeMap<i64, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&configured.base_path)? {
        let entry = entry?;
        if let Some(version) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.insert(version, entry.path());
        }
    }
    match &configured.versions {
        Some(wanted) => found.retain(|version, _| wanted.contains(version)),
        None => found = found.pop_last().into_iter().collect(),
    }
    Ok(found)
}

impl Manager {
    fn of(&self, name: &str) -> impl DoubleEndedIterator<Item = (&(String, i64), &Entry)> {
        self.entries.range((name.to_owned(), i64::MIN)..=(name.to_owned(), i64::MAX))
    }

    fn of_mut(
        &mut self,
        name: &str,
    ) -> impl DoubleEndedIterator<Item = (&(String, i64), &mut Entry)> {
        self.entries.range_mut((name.to_owned(), i64::MIN)..=(name.to_owned(), i64::MAX))
    }

    fn entry(&mut self, key: &(String, i64)) -> &mut Entry {
        self.entries.get_mut(key).expect("entries are never removed")
    }

    /// Sets the aspired versions of a name. Returns the versions to load, each with true if it was
    /// loaded before.
    fn aspire(&mut self, name: &str, versions: &BTreeMap<i64, PathBuf>) -> Vec<(Load, bool)> {
        let mut loads = Vec::new();
        for (&version, path) in versions {
            let key = (name.to_owned(), version);
            let (known, again) = match self.entries.get(&key) {
                Some(entry) => (true, entry.state == State::End && !entry.aspired),
                None => (false, false),
            };
            if !known || again {
                self.entries.insert(key, Entry::new());
                let load = Load { name: name.to_owned(), version, path: path.clone() };
                loads.push((load, again));
            }
        }
        for ((_, version), entry) in self.of_mut(name) {
            entry.aspired = versions.contains_key(version);
        }
        self.settle(name);
        loads
    }

    /// Unloads versions that are no longer aspired, as soon as an aspired one is AVAILABLE or none
    /// is aspired.
    fn settle(&mut self, name: &str) {
        let wanted = || self.of(name).filter(|(_, entry)| entry.aspired);
        let replaced = wanted().any(|(_, entry)| entry.state == State::Available);
        if !replaced && wanted().next().is_some() {
            return;
        }
        for (_, entry) in self.of_mut(name) {
            if entry.state == State::Available && !entry.aspired {
                entry.state = State::Unloading;
                entry.drained();
            }
        }
    }
}

impl Entry {
    fn new() -> Self {
        let signatures = Arc::default();
        Self { state: State::Start, error: None, signatures, aspired: true, in_flight: 0 }
    }

    fn end(&mut self, error: Option<Failure>) {
        self.state = State::End;
        self.error = error;
    }

    /// Completes an unload when no call is in flight.
    fn drained(&mut self) {
        if self.state == State::Unloading && self.in_flight == 0 {
            self.end(None);
        }
    }
}

/// A call in flight, which keeps its version loaded until it ends.
pub(super) struct InFlight {
    process: Arc<Process>,
    key: (String, i64),
    pub(super) signatures: Arc<Signatures>,
}

impl InFlight {
    pub(super) fn version(&self) -> i64 {
        self.key.1
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.process.update(|manager| {
            let entry = manager.entry(&self.key);
            entry.in_flight -= 1;
            entry.drained();
        });
    }
}
