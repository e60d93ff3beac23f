//! The server, the engines and the store in a few figures.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_console::Topic;
use outrigger_core::{EngineId, Stage};
use outrigger_lifecycle::{EngineView, Snapshot, VersionView};
use serde::Serialize;

use super::{
    Server,
    figures::{Account, EngineFigures, Figures},
};

/// The facts that are constant during the life of the process.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// The program's version.
    pub version: &'static str,
    /// The repository of models that the configuration does not list.
    pub repository: Option<String>,
    /// The tag for requests that name no version.
    pub default_tag: String,
    /// The processors of the process.
    pub cpus: Cpus,
}

/// The processors that the process may use.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cpus {
    /// The number of cores on which it may run.
    pub cores: usize,
    /// The limit of its control group, in CPUs.
    pub quota: Option<f64>,
    /// The number of threads that serve predictions.
    pub threads: usize,
}

/// A reload of the configuration that has ended.
#[derive(Debug, Clone, Serialize)]
pub struct Reload {
    /// Its time in milliseconds since 1970.
    pub at: u64,
    /// `ok`, `unchanged`, `refused` or `invalid`.
    pub outcome: &'static str,
    /// The reason why the old configuration stays in force.
    pub error: Option<String>,
}

impl Reload {
    /// A reload that ends now.
    pub fn new(outcome: &'static str, error: Option<String>) -> Self {
        Self { at: milliseconds(SystemTime::now()), outcome, error }
    }
}

/// The event with the main figures. It is sent every second, so it also shows that the stream is
/// alive.
#[derive(Serialize)]
struct Overview<'a> {
    about: &'a About,
    /// The current time in milliseconds since 1970.
    now: u64,
    /// The reason why no requests should be sent here.
    not_ready: Option<String>,
    last_reload: Option<Reload>,
    in_flight: f64,
    versions: BTreeMap<&'static str, usize>,
    /// The engines in the order of their names.
    engines: Vec<Engine<'a>>,
    store: Store<'a>,
    /// The accounts of memory by name.
    memory: &'a BTreeMap<String, Account>,
}

#[derive(Serialize)]
struct Engine<'a> {
    name: &'a str,
    in_process: bool,
    reachable: bool,
    reloading: bool,
    restarts: u64,
    failure: Option<&'a str>,
    loaded: usize,
    #[serde(flatten)]
    figures: EngineFigures,
}

#[derive(Serialize)]
struct Store<'a> {
    bytes: &'a BTreeMap<String, f64>,
    max_bytes: f64,
    evictions: f64,
}

/// The next revision of the topic; it differs every time, because it contains the time.
pub(crate) fn topic(
    last: &Topic,
    about: &About,
    server: &dyn Server,
    snapshot: &Snapshot,
    figures: &Figures,
) -> Topic {
    let overview = Overview {
        about,
        now: milliseconds(SystemTime::now()),
        not_ready: server.not_ready(),
        last_reload: server.last_reload(),
        in_flight: figures.in_flight,
        engines: snapshot.engines.iter().map(|it| engine(snapshot, figures, it)).collect(),
        store: Store {
            bytes: &figures.stored,
            max_bytes: figures.store_size,
            evictions: figures.evictions,
        },
        memory: &figures.accounts,
        versions: versions(snapshot),
    };
    last.next("overview", &overview, None::<&()>)
}

fn engine<'a>(
    snapshot: &Snapshot,
    figures: &Figures,
    (id, view): (&'a EngineId, &'a EngineView),
) -> Engine<'a> {
    let loaded = all_versions(snapshot).filter(|version| {
        let is_loaded = matches!(version.stage, Stage::Loaded | Stage::Available);
        is_loaded && version.engine.as_ref() == Some(id)
    });
    Engine {
        name: id.as_str(),
        in_process: view.in_process,
        reachable: view.reachable,
        reloading: view.reloading,
        restarts: view.restarts,
        failure: view.failure.as_ref().map(|failure| failure.message.as_str()),
        loaded: loaded.count(),
        figures: figures.engines.get(id.as_str()).cloned().unwrap_or_default(),
    }
}

fn all_versions(snapshot: &Snapshot) -> impl Iterator<Item = &VersionView> {
    snapshot.models.values().flat_map(|model| model.versions.values())
}

fn versions(snapshot: &Snapshot) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<_, _> = Stage::ALL.map(|stage| (stage.as_str(), 0)).into();
    for version in all_versions(snapshot) {
        *counts.entry(version.stage.as_str()).or_default() += 1;
    }
    counts
}

/// The milliseconds since 1970.
pub(crate) fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
