//! Carries out the effects of the machines as jobs and servables.

use std::sync::Arc;

use outrigger_core::{
    Attempt, ModelKey, ServableId,
    machines::{Effect, Event, TagKey},
    model::{self, Fault, State},
    tags,
};
use outrigger_run::Failed;

use super::{Service, report};
use crate::{
    jobs::{
        Done, disk,
        gate::{self, Neighbour},
        prepare::{self, Prepared},
        pull,
    },
    places::Asker,
    world::{World, defect},
};

impl Service {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Resolve(key, attempt) => self.resolve(key, attempt),
            Effect::Switched(key, digest) => {
                self.publishing.reports.add(move || report::switched(&key, digest));
            }
            Effect::LoadFailed(key, failure) => {
                self.publishing.reports.add(move || report::failure(&key, "loading", &failure));
            }
            Effect::CrashesUnexplained(engine) => {
                self.publishing.reports.add(move || report::unexplained(&engine));
            }
            Effect::Model(key, effect) => self.carry_out_model(key, effect),
            Effect::Engine(engine, message) => {
                if let Some(courier) = self.couriers.get(&engine) {
                    courier.send(message, self.world.durable.number());
                }
            }
        }
    }

    fn carry_out_model(&mut self, key: ModelKey, effect: model::Effect) {
        use model::Effect as E;
        match effect {
            E::Pull(attempt) => self.pull(key, attempt),
            E::CancelPull(_) => self.pulls.cancel(&key),
            E::Prepare(attempt) => self.prepare(key, attempt),
            E::Publish(attempt, id) => self.publish_servable(key, attempt, id),
            E::Unpublish(id) => self.unpublish(&key, id),
            E::Check(attempt, id) => self.check(key, attempt, id),
            E::Route(id, route) => self.versions.route(key, id, route),
            E::Withdraw(_) => self.versions.withdraw(&key),
            E::Delete(attempt) => self.delete(key, attempt),
            // The machines send these as messages to the version's engine.
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
            done(pull::look_up(&world, &key).await)
        });
    }

    fn pull(&mut self, key: ModelKey, attempt: Attempt) {
        let origin = self.world.origin(&key);
        if self.pulls.join(&origin, &key, attempt) {
            return;
        }
        let failed =
            Done::Pulled { origin: origin.clone(), result: Err(defect()), evicted: Vec::new() };
        let tracer = &self.world.config.tracer;
        let step = self.publishing.bring_ups.step_of(&key, &self.machines, tracer);
        let is_own = self.world.names.load().is_configured(&key.name)
            || self.machines.models_of(&key.name).any(|model| model.routed().is_some());
        let asker =
            if is_own { Asker::Own } else { Asker::Stranger(self.askers.remove(&key.name)) };
        let pull = pull::pull(Arc::clone(&self.world), key.clone(), origin.clone(), asker, step);
        let job = self.jobs.start(failed, pull);
        self.pulls.begin(origin, key, attempt, job);
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
        let (world, number) = (Arc::clone(&self.world), self.world.durable.number());
        let prepared = self.versions.prepared.get(&key).cloned();
        let done = {
            let key = key.clone();
            move |result| Done::Event(Event::Model(key, model::Event::Published(attempt, result)))
        };
        self.jobs.start(done.clone()(Err(Fault::Failed(defect()))), async move {
            done(publish(&world, &key, id, prepared, number).await)
        });
    }

    fn unpublish(&mut self, key: &ModelKey, id: ServableId) {
        let engine = self.machines.engine_of(key).and_then(|engine| self.world.engines.get(engine));
        let Some(engine) = engine.cloned() else { return };
        self.jobs.start(Done::Nothing, async move {
            engine.unpublish(id).await;
            Done::Nothing
        });
    }

    fn check(&mut self, key: ModelKey, attempt: Attempt, id: ServableId) {
        let failed = Done::Checked {
            key: key.clone(),
            attempt,
            prepared: None,
            result: Err(defect()),
            harmed: Vec::new(),
        };
        let known = self.versions.prepared.get(&key).cloned();
        let world = Arc::clone(&self.world);
        let recent = self.versions.recent_requests(&key.name);
        let beside = self.neighbours(&key, &id);
        self.jobs.start(failed, gate::check(world, key, attempt, id, known, recent, beside));
    }

    /// The versions whose answers the load of `key` may have changed.
    fn neighbours(&self, key: &ModelKey, id: &ServableId) -> Vec<Neighbour> {
        let name = self.machines.engine_of(key);
        let engine = name.and_then(|name| self.world.engines.get(name));
        let Some(engine) = engine.filter(|engine| engine.shares_process(id)) else {
            return Vec::new();
        };
        let others = self.versions.prepared.iter().filter(|(other, _)| *other != key);
        let beside = others.filter_map(|(other, prepared)| {
            let state = self.machines.model(other)?.state();
            let (State::Checking { id, .. } | State::Serving { id } | State::Draining { id }) =
                state
            else {
                return None;
            };
            let passed = !matches!(state, State::Checking { .. });
            let shares = Some(&prepared.engine.0) == name && engine.shares_process(id);
            let key = other.clone();
            let id = id.clone();
            let prepared = Arc::clone(prepared);
            shares.then_some(Neighbour { key, id, prepared, passed })
        });
        beside.collect()
    }

    fn delete(&mut self, key: ModelKey, attempt: Attempt) {
        let (world, digest) = (Arc::clone(&self.world), key.digest);
        let number = world.durable.number();
        let done = move || Done::Event(Event::Model(key, model::Event::Deleted(attempt)));
        self.jobs.start(done.clone()(), async move {
            world.durable.settled(number).await;
            disk::delete(&world, digest).await;
            done()
        });
    }
}

/// Publishes the files of `key` as `id`, once the state `number` is settled.
async fn publish(
    world: &Arc<World>,
    key: &ModelKey,
    id: ServableId,
    prepared: Option<Arc<Prepared>>,
    number: u64,
) -> Result<(), Fault> {
    let prepared = prepared.ok_or(Fault::FilesMissing)?;
    world.durable.settled(number).await;
    let (_, engine) = &prepared.engine;
    let published = engine.publish(id, key.digest, prepared.model.clone()).await;
    published.map_err(|failed| match failed {
        Failed::FilesMissing => Fault::FilesMissing,
        Failed::Other(failure) => Fault::Failed(failure),
    })
}
