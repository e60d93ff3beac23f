//! The server, the engine and the store in a few figures.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_core::Stage;
use outrigger_lifecycle::Snapshot;
use serde::Serialize;

use super::{Server, figures::Figures, topic::Topic};

/// The facts that are constant during the life of the process.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// The program's version.
    pub version: &'static str,
    /// The repository of models that the configuration does not list.
    pub repository: Option<String>,
    /// The tag for requests that name no version.
    pub default_tag: String,
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
    engine: Engine<'a>,
    store: Store<'a>,
}

#[derive(Serialize)]
struct Engine<'a> {
    reachable: bool,
    reloading: bool,
    restarts: u64,
    failure: Option<&'a str>,
    reloads: &'a BTreeMap<String, f64>,
    loaded: usize,
    calls: f64,
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
    let versions = versions(snapshot);
    let count = |stage: Stage| versions[stage.as_str()];
    let loaded = count(Stage::Loaded) + count(Stage::Available);
    let engine = snapshot.engines.values().next().cloned().unwrap_or_default();
    let engine = &engine;
    let overview = Overview {
        about,
        now: milliseconds(SystemTime::now()),
        not_ready: server.not_ready(),
        last_reload: server.last_reload(),
        in_flight: figures.in_flight,
        engine: Engine {
            reachable: engine.reachable,
            reloading: engine.reloading,
            restarts: engine.restarts,
            failure: engine.failure.as_ref().map(|failure| failure.message.as_str()),
            reloads: &figures.reloads,
            loaded,
            calls: figures.engine_calls,
        },
        store: Store {
            bytes: &figures.stored,
            max_bytes: figures.store_size,
            evictions: figures.evictions,
        },
        versions,
    };
    last.next("overview", &overview, None::<&()>)
}

fn versions(snapshot: &Snapshot) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<_, _> = Stage::ALL.map(|stage| (stage.as_str(), 0)).into();
    for version in snapshot.models.values().flat_map(|model| model.versions.values()) {
        *counts.entry(version.stage.as_str()).or_default() += 1;
    }
    counts
}

/// The milliseconds since 1970.
pub(crate) fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
