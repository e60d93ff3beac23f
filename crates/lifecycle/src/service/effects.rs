//! What the machines want done becomes jobs and servables.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use outrigger_core::{
    Attempt, Failure, ModelKey, Reason, ServableId,
    fleet::{Effect, Event, TagKey},
    model::{self, Fault},
    tags,
};
use outrigger_run::Failed;

use super::{Pull, Service, note_failure};
use crate::{
    bind,
    courier::Journal,
    jobs::{Done, Origin, Prepared, disk, gate, prepare, pull},
    lease::{Live, Servable},
    metrics,
    world::{World, blocking, defect},
};

impl Service {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Resolve(key, attempt) => self.resolve(key, attempt),
            Effect::Switched(key, digest) => {
                metrics::switched();
                tracing::info!(
                    model.name = %key.name, model.tag = %key.tag, model.digest = %digest,
                    "the tag is answered by another version"
                );
            }
            Effect::LoadFailed(key, failure) => note_failure(&key, "loading", &failure),
            Effect::Model(key, effect) => self.carry_out_model(key, effect),
            Effect::Engine(engine, message) => {
                if let Some(courier) = self.couriers.get(&engine) {
                    courier.send(message, self.journal.clone());
                }
            }
        }
    }

    fn carry_out_model(&mut self, key: ModelKey, effect: model::Effect) {
        use model::Effect as E;
        match effect {
            E::Pull(attempt) => self.pull(key, attempt),
            E::CancelPull(_) => self.cancel_pull(&key),
            E::Prepare(attempt) => self.prepare(key, attempt),
            E::Publish(attempt, id) => self.publish_servable(key, attempt, id),
            E::Unpublish(id) => self.unpublish(&key, id),
            E::Check(attempt, id) => self.check(key, attempt, id),
            E::Route(id, route) => self.route(key, id, route),
            // The routing table lets go of it when it is published next.
            E::Withdraw(_) => self.live.get_mut(&key).into_iter().for_each(Live::withdraw),
            E::Delete(attempt) => self.delete(key, attempt),
            // The fleet sends these to the engine of the version.
            E::Add(_) | E::Remove(_) => {}
        }
    }

    fn resolve(&mut self, key: TagKey, attempt: Attempt) {
        let world = Arc::clone(&self.world);
        let done = {
            let key = key.clone();
            move |result| Done::Event(Event::Tag(key, tags::Event::Resolved(attempt, result)))
        };
        self.jobs.start(done.clone()(Err(defect())), async move {
            let result = pull::resolve(&world, &key.name, &key.tag).await;
            // That a tag has no canary is normal.
            let normal =
                |failure: &Failure| failure.reason == Reason::TagNotFound && key.tag.is_canary();
            if let Err(failure) = &result
                && !normal(failure)
            {
                tracing::warn!(
                    model.name = %key.name, model.tag = %key.tag,
                    reason = %failure.reason, error = %failure.message,
                    "cannot look the tag up"
                );
            }
            done(result)
        });
    }

    fn pull(&mut self, key: ModelKey, attempt: Attempt) {
        let origin = self.origin(&key);
        if let Some(pull) = self.pulls.get_mut(&origin) {
            pull.waiting.insert(key, attempt);
            return;
        }
        let failed = Done::Pulled { origin: origin.clone(), result: Err(defect()), trees: None };
        let step = self.step_of(&key);
        let pull = pull::pull(Arc::clone(&self.world), key.clone(), origin.clone(), step);
        let job = self.jobs.start(failed, pull);
        self.pulls.insert(origin, Pull { waiting: BTreeMap::from([(key, attempt)]), job });
    }

    /// Where a version is pulled from.
    pub(super) fn origin(&self, key: &ModelKey) -> Origin {
        Origin { digest: key.digest, image: self.world.names.image(&key.name).ok() }
    }

    fn cancel_pull(&mut self, key: &ModelKey) {
        let origin = self.origin(key);
        let Some(pull) = self.pulls.get_mut(&origin) else { return };
        pull.waiting.remove(key);
        if pull.waiting.is_empty() {
            pull.job.abort();
            self.pulls.remove(&origin);
        }
    }

    fn prepare(&mut self, key: ModelKey, attempt: Attempt) {
        let world = Arc::clone(&self.world);
        let done = {
            let key = key.clone();
            move |result| Done::Prepared { key, attempt, result }
        };
        self.jobs.start(done.clone()(Err(Fault::Failed(defect()))), async move {
            done(prepare::prepare(&world, &key).await)
        });
    }

    fn publish_servable(&mut self, key: ModelKey, attempt: Attempt, id: ServableId) {
        let (world, journal) = (Arc::clone(&self.world), self.journal.clone());
        let prepared = self.prepared.get(&key).cloned();
        let done = {
            let key = key.clone();
            move |result| Done::Event(Event::Model(key, model::Event::Published(attempt, result)))
        };
        self.jobs.start(done.clone()(Err(Fault::Failed(defect()))), async move {
            done(publish(&world, &key, id, prepared, journal).await)
        });
    }

    fn unpublish(&mut self, key: &ModelKey, id: ServableId) {
        let engine = self.fleet.engine_of(key).and_then(|engine| self.world.engines.get(engine));
        let Some(engine) = engine.cloned() else { return };
        self.jobs.start(Done::Nothing, async move {
            engine.unpublish(id).await;
            Done::Nothing
        });
    }

    fn check(&mut self, key: ModelKey, attempt: Attempt, id: ServableId) {
        let failed =
            Done::Checked { key: key.clone(), attempt, prepared: None, result: Err(defect()) };
        let known = self.prepared.get(&key).cloned();
        let world = Arc::clone(&self.world);
        let recent = self.recent.get(&key.name).map(|recent| recent.requests());
        let recent = recent.unwrap_or_default();
        self.jobs.start(failed, gate::check(world, key, attempt, id, known, recent));
    }

    fn delete(&mut self, key: ModelKey, attempt: Attempt) {
        let (world, digest) = (Arc::clone(&self.world), key.digest);
        let done = move || Done::Event(Event::Model(key, model::Event::Deleted(attempt)));
        self.jobs.start(done.clone()(), async move {
            disk::delete(&world, digest).await;
            done()
        });
    }

    /// Gives requests the servable: the one that draining leases still hold, so
    /// that its end is seen only once, else a new one.
    fn route(&mut self, key: ModelKey, id: ServableId, route: u64) {
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
}

/// Publishes the files of `key` as `id`, once `journal` is on disk.
async fn publish(
    world: &Arc<World>,
    key: &ModelKey,
    id: ServableId,
    prepared: Option<Arc<Prepared>>,
    (number, legacy): Journal,
) -> Result<(), Fault> {
    let prepared = prepared.ok_or(Fault::FilesMissing)?;
    blocking(world, move |world| world.write_journal(number, &legacy)).await;
    let (_, engine) = &prepared.engine;
    let published = engine.publish(id, key.digest, prepared.model.clone()).await;
    published.map_err(|failed| match failed {
        Failed::FilesMissing => Fault::FilesMissing,
        Failed::Other(failure) => Fault::Failed(failure),
    })
}
