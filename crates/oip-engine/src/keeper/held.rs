//! A version on one server.

use std::sync::Arc;

use outrigger_core::{Failure, ServableId};
use outrigger_oip_client::Backoff;
use tokio::time::Instant;

use crate::{Engine, fleet::Standing, framework::Remote};

/// A version on one server.
#[derive(Debug)]
pub(super) struct Held {
    /// The orders that it was added with.
    pub(super) since: u64,
    /// The model that is run; `None` if the version was not published.
    pub(super) remote: Option<Remote>,
    /// Its models, in the order in which they are loaded.
    pub(super) models: Vec<Arc<str>>,
    /// Those that this process had loaded here.
    pub(super) loaded: Vec<Arc<str>>,
    pub(super) phase: Phase,
    pub(super) standing: Standing,
    /// True if it was missing since it was added.
    pub(super) was_missing: bool,
    /// True if it was removed.
    pub(super) is_leaving: bool,
    /// The loads that have failed in a row.
    pub(super) failures: u32,
    /// The time of the next load.
    pub(super) due: Instant,
}

/// The next step with a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is loaded when its time has come.
    ToLoad,
    Loading,
    /// It was loaded, here or by others: the server says whether it has it.
    Loaded,
}

impl Held {
    pub(super) fn new(engine: &Engine, id: &ServableId) -> Self {
        let version = engine.versions.get(id);
        Self {
            since: 0,
            remote: version.as_ref().map(|version| version.remote.clone()),
            models: version.map(|version| version.models.clone()).unwrap_or_default(),
            loaded: Vec::new(),
            phase: Phase::Loaded,
            standing: Standing::Pending,
            was_missing: false,
            is_leaving: false,
            failures: 0,
            due: Instant::now(),
        }
    }

    /// Begins with a version that was added, or added again. `loads`: models are loaded at all.
    pub(super) fn begin(&mut self, since: u64, loads: bool) {
        self.since = since;
        self.is_leaving = false;
        self.failures = 0;
        self.due = Instant::now();
        self.was_missing = false;
        self.standing = Standing::Pending;
        if self.phase != Phase::Loading {
            self.phase = if loads { Phase::ToLoad } else { Phase::Loaded };
        }
    }

    pub(super) fn standing(&self) -> Standing {
        if self.is_leaving { Standing::Leaving } else { self.standing.clone() }
    }

    /// The server has it.
    pub(super) fn found(&mut self) {
        self.standing = Standing::Ready;
        self.failures = 0;
    }

    /// The server does not have it, and loads it again if `loads` is true.
    pub(super) fn missed(&mut self, failure: Failure, loads: bool, pauses: Backoff) {
        self.loaded = Vec::new();
        if loads && self.standing != Standing::Ready {
            return self.failed(failure, pauses);
        }
        if loads {
            // The first load again is not delayed.
            self.phase = Phase::ToLoad;
        }
        self.was_missing = true;
        self.due = Instant::now();
        self.standing = Standing::Missing(failure);
    }

    /// A load has failed. The next one follows after a pause.
    pub(super) fn failed(&mut self, failure: Failure, pauses: Backoff) {
        self.failures += 1;
        self.was_missing = true;
        self.phase = Phase::ToLoad;
        self.due = Instant::now() + pauses.pause(self.failures, 1.0);
        self.standing = Standing::Missing(failure);
    }
}
