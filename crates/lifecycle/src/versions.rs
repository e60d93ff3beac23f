//! Data about versions outside their machines: files, plans, servables, warm-ups.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use outrigger_core::{Digest, ModelKey, ModelName, ServableId, Stage, machines::Machines};
use outrigger_features::Arrived;

use crate::{
    drains::Drains,
    jobs::prepare::{Kept, Prepared},
    lease::{Live, Servable},
    load::{Load, ModelLoad},
    recent::Recent,
    replay::Replayed,
};

/// Data about versions.
#[derive(Default)]
pub(crate) struct VersionData {
    pub(crate) prepared: BTreeMap<ModelKey, Arc<Prepared>>,
    /// Facts about the files of each version in the store.
    pub(crate) kept: BTreeMap<ModelKey, Kept>,
    live: BTreeMap<ModelKey, Live>,
    /// The latest requests of each model with a servable.
    recent: BTreeMap<ModelName, Arc<Recent>>,
    /// The requests in progress of each model with a servable.
    loads: BTreeMap<ModelName, Arc<ModelLoad>>,
    /// The warm-up results of the versions.
    pub(crate) replayed: BTreeMap<ModelKey, Replayed>,
    pub(crate) drains: Arc<Drains>,
}

impl VersionData {
    /// The servable of a version that is routed.
    pub(crate) fn routed(&self, key: &ModelKey) -> Option<Arc<Servable>> {
        self.live.get(key).and_then(Live::routed)
    }

    /// The latest requests of a model.
    pub(crate) fn recent_requests(&self, model: &ModelName) -> Vec<Arrived> {
        self.recent.get(model).map(|recent| recent.requests()).unwrap_or_default()
    }

    /// Makes the servable available to requests. A servable that draining leases still hold is
    /// reused, so that its end is reported only once; otherwise a new one is created.
    pub(crate) fn route(&mut self, key: ModelKey, id: ServableId, route: u64) {
        let held = self.live.get(&key).and_then(|live| live.revive(&id, route));
        let servable = held.unwrap_or_else(|| {
            let prepared = self.prepared.get(&key).expect("the gate was passed with it");
            let scorer = prepared.scorer(id);
            let model = self.loads.entry(key.name.clone()).or_default();
            Arc::new(Servable {
                key: key.clone(),
                platform_digest: prepared.platform_digest,
                engine: prepared.engine.0.clone(),
                load: Load::of(model, Arc::clone(&scorer.flight)),
                scorer,
                profile: prepared.profile.clone(),
                _memory: Arc::clone(&prepared.memory),
                described: OnceLock::new(),
                recent: Arc::clone(self.recent.entry(key.name.clone()).or_default()),
                route: route.into(),
                drains: Arc::clone(&self.drains),
            })
        });
        self.live.insert(key, Live::new(servable));
    }

    /// Withdraws the servable from requests. The routing table releases it with its next
    /// publication.
    pub(crate) fn withdraw(&mut self, key: &ModelKey) {
        self.live.get_mut(key).into_iter().for_each(Live::withdraw);
    }

    /// Drops servables of these models without any holder left.
    pub(crate) fn forget_drained(&mut self, models: &BTreeSet<ModelName>) {
        for name in models {
            retain_of(&mut self.live, name, |_, live| !live.is_gone());
        }
    }

    /// Drops data about versions of these models whose files are gone, and the plans of those that
    /// are not loaded: a version is prepared anew for each load.
    pub(crate) fn forget_deleted(&mut self, models: &BTreeSet<ModelName>, machines: &Machines) {
        let has_files =
            |key: &ModelKey| machines.model(key).is_some_and(|model| model.stage() > Stage::New);
        let is_loaded =
            |key: &ModelKey| machines.model(key).is_some_and(|model| model.state().needs_files());
        for name in models {
            retain_of(&mut self.prepared, name, |key, _| is_loaded(key));
            retain_of(&mut self.kept, name, |key, _| has_files(key));
            retain_of(&mut self.replayed, name, |key, _| has_files(key));
            // Servables hold the requests of a model that has any.
            if self.recent.get(name).is_some_and(|recent| Arc::strong_count(recent) == 1) {
                self.recent.remove(name);
            }
            if self.loads.get(name).is_some_and(|load| Arc::strong_count(load) == 1) {
                self.loads.remove(name);
            }
        }
    }
}

/// Drops the entries of the versions of `name` for which `keep` returns false.
pub(crate) fn retain_of<T>(
    map: &mut BTreeMap<ModelKey, T>,
    name: &ModelName,
    keep: impl Fn(&ModelKey, &T) -> bool,
) {
    let first = ModelKey { name: name.clone(), digest: Digest::LEAST };
    let own = map.range(first..).take_while(|(key, _)| key.name == *name);
    let dropped: Vec<_> = own.filter(|(key, it)| !keep(key, it)).map(|it| it.0.clone()).collect();
    dropped.iter().for_each(|key| drop(map.remove(key)));
}
