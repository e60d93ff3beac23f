//! Effects of the machines, which become jobs and servables.

use std::sync::Arc;

use outrigger_core::{
    Attempt, ModelKey, ServableId,
    fleet::{Effect, Event, TagKey},
    model::{self, Fault},
    serving::{self, PushOutcome},
    tags,
};

use super::{Service, report_failure};
use crate::{
    jobs::{Done, disk, engine, gate, prepare, pull},
    metrics,
    world::defect,
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
            Effect::LoadFailed(key, failure) => report_failure(&key, "loading", &failure),
            Effect::Model(key, effect) => self.carry_out_model(key, effect),
            Effect::Engine(effect) => self.carry_out_engine(effect),
        }
    }

    fn carry_out_model(&mut self, key: ModelKey, effect: model::Effect) {
        use model::Effect as E;
        match effect {
            E::Pull(attempt) => self.pull(key, attempt),
            E::CancelPull(_) => self.pulls.cancel(&self.world.origin(&key), &key),
            E::Prepare(attempt) => self.prepare(key, attempt),
            E::Publish(attempt, id) => self.publish_servable(key, attempt, id),
            E::Unpublish(id) => self.unpublish(id),
            E::Check(attempt, id) => self.check(key, attempt, id),
            E::Route(id, route) => self.versions.route(key, id, route, &self.backend),
            E::Withdraw(_) => self.versions.withdraw(&key),
            E::Delete(attempt) => self.delete(key, attempt),
            // The fleet hands these to the engine's machine itself.
            E::Add(_) | E::Remove(_) => {}
        }
    }

    fn carry_out_engine(&mut self, effect: serving::Effect) {
        use serving::Effect as E;
        match effect {
            E::PublishPlaceholder(attempt, id) => self.publish_placeholder(attempt, id),
            E::Unpublish(id) => self.unpublish(id),
            E::Push(attempt, set) => {
                self.reloads.begin(&self.world.config.tracer, &set);
                let (world, journal) = (Arc::clone(&self.world), self.journal.machines());
                let done = move |outcome| engine_event(serving::Event::Pushed(attempt, outcome));
                self.jobs.start(done(PushOutcome::TimedOut), async move {
                    done(engine::push(&world, set, journal).await)
                });
            }
            E::Probe(attempt, names) => {
                let world = Arc::clone(&self.world);
                let done = move |result| engine_event(serving::Event::Probed(attempt, result));
                self.jobs.start(done(Err(defect())), async move {
                    done(engine::probe(&world, names).await)
                });
            }
            E::Restarted => {
                metrics::restarted();
                tracing::warn!("the engine has restarted; its models are loaded again");
            }
            E::Settled => {
                self.clean();
                self.sweep();
            }
            // The fleet hands these to the models' machines itself.
            E::Up(_) | E::Failed(..) | E::Lost(_) | E::Gone(_) => {}
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
        let failed = Done::Pulled { origin: origin.clone(), result: Err(defect()), trees: None };
        let tracer = &self.world.config.tracer;
        let step = self.publishing.bring_ups.step_of(&key, &self.fleet, tracer);
        let pull = pull::pull(Arc::clone(&self.world), key.clone(), origin.clone(), step);
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
        let (world, journal) = (Arc::clone(&self.world), self.journal.machines());
        let done = {
            let key = key.clone();
            move |result| Done::Event(Event::Model(key, model::Event::Published(attempt, result)))
        };
        self.jobs.start(done.clone()(Err(Fault::Failed(defect()))), async move {
            done(disk::publish(&world, &key, id, journal).await)
        });
    }

    fn publish_placeholder(&mut self, attempt: Attempt, id: ServableId) {
        let world = Arc::clone(&self.world);
        let done = {
            let id = id.clone();
            move |result| engine_event(serving::Event::PlaceholderPublished(attempt, id, result))
        };
        self.jobs.start(done.clone()(Err(defect())), async move {
            done(disk::publish_placeholder(&world, id).await)
        });
    }

    fn unpublish(&mut self, id: ServableId) {
        let world = Arc::clone(&self.world);
        self.jobs.start(Done::Nothing, async move {
            disk::unpublish(&world, id).await;
            Done::Nothing
        });
    }

    fn check(&mut self, key: ModelKey, attempt: Attempt, id: ServableId) {
        let failed =
            Done::Checked { key: key.clone(), attempt, prepared: None, result: Err(defect()) };
        let known = self.versions.prepared.get(&key).cloned();
        let world = Arc::clone(&self.world);
        let recent = self.versions.recent_requests(&key.name);
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

    /// Removes what earlier processes have left in the engine's directories.
    fn clean(&mut self) {
        let (world, last) = (Arc::clone(&self.world), self.inherited);
        let keep = self.fleet.serving().mentioned();
        self.jobs.start(Done::Nothing, async move {
            disk::clean(&world, last, keep).await;
            Done::Nothing
        });
    }
}

fn engine_event(event: serving::Event) -> Done {
    Done::Event(Event::Engine(event))
}
