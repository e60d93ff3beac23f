//! The suspected versions, as callers and people see them.

use std::collections::{BTreeMap, BTreeSet};

use super::Watch;
use crate::{
    EngineId, ModelKey,
    machines::Machines,
    model::{ModelMachine, State},
};

/// The activity of a version whose load waits, for people.
pub(in crate::machines) const SUSPECTED: &str = "suspected of ending the engine, waits its turn";
/// The activity of a version that is loaded into an engine whose crashes no version explains, for
/// people.
pub(in crate::machines) const UNEXPLAINED: &str =
    "loading; the engine ends again and again, and no version explains it";

/// The suspected versions of an engine, as their callers see them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suspects {
    /// The versions that may have ended the engine by a call.
    pub versions: BTreeSet<ModelKey>,
    /// Their calls wait, because one of them is being loaded or will be.
    pub are_loading: bool,
    /// They make one call at a time.
    pub are_apart: bool,
}

impl Machines {
    /// The current activity of a version, for people.
    pub fn activity_of(&self, model: &ModelMachine) -> &'static str {
        let waits = |watch: &Watch| watch.held.contains_key(model.key());
        if self.watches.values().any(waits) {
            return SUSPECTED;
        }
        let watch = self.engine_of(model.key()).and_then(|engine| self.watches.get(engine));
        let is_loading = matches!(model.state(), State::Loading { .. });
        let is_unexplained = watch.is_some_and(|watch| watch.crashes.are_unexplained());
        if is_loading && is_unexplained { UNEXPLAINED } else { model.activity() }
    }

    /// The engines, each with true if no version explains its crashes.
    pub fn unexplained(&self) -> impl Iterator<Item = (&EngineId, bool)> {
        self.engines.keys().map(|engine| {
            let watch = self.watches.get(engine);
            (engine, watch.is_some_and(|watch| watch.crashes.are_unexplained()))
        })
    }

    /// The suspects of each engine that has any.
    pub fn suspects(&self) -> BTreeMap<EngineId, Suspects> {
        let each = self.watches.iter().map(|(engine, Watch { crashes, .. })| {
            let is_loading = |key: &ModelKey| {
                let state = self.models.get(key).map(ModelMachine::state);
                matches!(state, Some(State::Loading { .. } | State::Checking { .. }))
            };
            let versions = crashes.common().clone();
            let suspects = Suspects {
                are_loading: versions.iter().any(|key| !crashes.is_grave(key) && is_loading(key)),
                are_apart: crashes.are_apart(),
                versions,
            };
            (engine.clone(), suspects)
        });
        each.filter(|(_, suspects)| !suspects.versions.is_empty()).collect()
    }

    /// The convicted versions.
    pub fn quarantined(&self) -> impl Iterator<Item = &ModelKey> {
        self.watches.values().flat_map(|watch| watch.crashes.convicted().keys())
    }
}
