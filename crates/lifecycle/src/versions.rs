//! Data about versions outside their machines: files, plans, servables, warm-ups.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use outrigger_core::{ModelKey, ModelName, ServableId, Stage, machines::Machines};

use crate::{
    drains::Drains,
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
    /// The latest requests of each model with a servable.
    recent: BTreeMap<ModelName, Arc<Recent>>,
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
    pub(crate) fn recent_requests(&self, model: &ModelName) -> Vec<Bytes> {
        self.recent.get(model).map(|recent| recent.requests()).unwrap_or_default()
    }

    /// Makes the servable available to requests. A servable that draining leases still hold is
    /// reused, so that its end is reported only once; otherwise a new one is created.
    pub(crate) fn route(&mut self, key: ModelKey, id: ServableId, route: u64) {
        let held = self.live.get(&key).and_then(|live| live.revive(&id, route));
        let servable = held.unwrap_or_else(|| {
            let prepared = self.prepared.get(&key).expect("the gate was passed with it");
            Arc::new(Servable {
                key: key.clone(),
                platform_digest: prepared.platform_digest,
                engine: prepared.engine.0.clone(),
                scorer: prepared.scorer(id),
                profile: prepared.profile.clone(),
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

    /// Drops servables without any holder left.
    pub(crate) fn forget_drained(&mut self) {
        self.live.retain(|_, live| !live.is_gone());
    }

    /// Drops data about versions whose files are gone.
    pub(crate) fn forget_deleted(&mut self, machines: &Machines) {
        let has_files =
            |key: &ModelKey| machines.model(key).is_some_and(|model| model.stage() > Stage::New);
        self.prepared.retain(|key, _| has_files(key));
        self.kept.retain(|key, _| has_files(key));
        self.replayed.retain(|key, _| has_files(key));
        // The removed entries have no other holder; servables hold the rest.
        self.recent.retain(|_, recent| Arc::strong_count(recent) > 1);
    }
}
