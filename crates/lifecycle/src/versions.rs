//! Data about versions, beside their machines: files, plans, servables, warm-ups.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use outrigger_core::{ModelKey, ModelName, ServableId, Stage, fleet::Fleet};

use crate::{
    drains::Drains,
    gate::bind,
    jobs::prepare::{Kept, Prepared},
    lease::{Live, Servable},
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
    /// The latest requests of each model that is up.
    recent: BTreeMap<ModelName, Arc<Recent>>,
    /// How the versions were warmed up.
    pub(crate) replayed: BTreeMap<ModelKey, Replayed>,
    pub(crate) drains: Arc<Drains>,
}

impl VersionData {
    /// The servable of a version that is routed.
    pub(crate) fn routed(&self, key: &ModelKey) -> Option<Arc<Servable>> {
        self.live.get(key).and_then(Live::routed)
    }

    /// The latest requests of a model.
    pub(crate) fn recent_requests(&self, model: &ModelName) -> Vec<Bytes> {
        self.recent.get(model).map(|recent| recent.requests()).unwrap_or_default()
    }

    /// Gives requests the servable: the one that draining leases still hold, so that its
    /// end is seen only once, else a new one.
    pub(crate) fn route(&mut self, key: ModelKey, id: ServableId, route: u64) {
        let held = self.live.get(&key).and_then(|live| live.revive(&id, route));
        let servable = held.unwrap_or_else(|| {
            let prepared = self.prepared.get(&key).expect("the gate was passed with it");
            Arc::new(Servable {
                key: key.clone(),
                platform_digest: prepared.platform_digest,
                engine: prepared.engine.0.clone(),
                run: bind(&*prepared.engine.1, &id, &prepared.plan),
                id,
                plan: Arc::clone(&prepared.plan),
                profile: prepared.profile.clone(),
                described: OnceLock::new(),
                recent: Arc::clone(self.recent.entry(key.name.clone()).or_default()),
                route: route.into(),
                drains: Arc::clone(&self.drains),
            })
        });
        self.live.insert(key, Live::new(servable));
    }

    /// Takes the servable from requests. The routing table lets go of it when it is
    /// published next.
    pub(crate) fn withdraw(&mut self, key: &ModelKey) {
        self.live.get_mut(key).into_iter().for_each(Live::withdraw);
    }

    /// Forgets servables that nobody holds any more.
    pub(crate) fn forget_drained(&mut self) {
        self.live.retain(|_, live| !live.is_gone());
    }

    /// Forgets data about versions whose files are gone.
    pub(crate) fn forget_deleted(&mut self, fleet: &Fleet) {
        let has_files =
            |key: &ModelKey| fleet.model(key).is_some_and(|model| model.stage() > Stage::New);
        self.prepared.retain(|key, _| has_files(key));
        self.kept.retain(|key, _| has_files(key));
        self.replayed.retain(|key, _| has_files(key));
        // The others are held by servables.
        self.recent.retain(|_, recent| Arc::strong_count(recent) > 1);
    }
}
