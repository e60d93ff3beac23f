//! What others see: the routing table, and the snapshot.

use std::{collections::BTreeMap, sync::Arc};

use outrigger_core::{
    Failure, ModelKey, ModelName, Moment, Reason, Selector, Stage,
    fleet::Answer,
    model::{ModelMachine, Trouble},
    tags::TagMachine,
};

use super::{Asked, Outside, Service};
use crate::{
    handle::stopping,
    lease::Live,
    metrics,
    routes::{Entry, ModelRoutes, Route, Routes},
    snapshot::{
        EngineView, FailureView, ModelView, Snapshot, TagView, TransitionView, VersionView,
    },
};

/// The stage a version was last seen in, and since when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    stage: Stage,
    since: Moment,
}

impl Service {
    /// Publishes what has changed.
    pub(super) fn publish(&mut self) {
        let now = self.clock.now();
        self.publish_routes(now);
        self.note_stages(now);
        self.forget_prepared();
        self.publish_snapshot(now);
    }

    fn publish_routes(&mut self, now: Moment) {
        let answers = self.answers(now);
        let full = self.fleet.is_full();
        if answers == self.outside.answers && full == self.outside.full {
            return;
        }
        self.asked.retain(|key, _| answers.contains_key(key));
        let mut routes = Routes {
            models: Default::default(),
            closed: None,
            full: full
                .then(|| Failure::new(Reason::Overloaded, "too many unknown models are asked for")),
        };
        for ((name, selector), answer) in &answers {
            let asked = self.asked.entry((name.clone(), selector.clone()));
            let asked = asked.or_insert_with(|| Asked { at: Arc::default(), told: None });
            let entry = Entry { route: route(&self.live, answer), asked: Arc::clone(&asked.at) };
            let model: &mut ModelRoutes = routes.models.entry(name.clone()).or_default();
            match selector {
                Selector::Tag(tag) => drop(model.tags.insert(tag.clone(), entry)),
                Selector::Digest(digest) => drop(model.digests.insert(*digest, entry)),
            }
        }
        self.live.retain(|_, live| !live.is_gone());
        self.outside.answers = answers;
        self.outside.full = full;
        self.outside.route(routes);
    }

    fn answers(&self, now: Moment) -> BTreeMap<(ModelName, Selector), Answer> {
        let tags = self.fleet.tags().map(|(key, _)| {
            let selector = Selector::Tag(key.tag.clone());
            ((key.name.clone(), selector), self.fleet.answer_tag(key, now))
        });
        let digests = self.fleet.models().map(|model| {
            let ModelKey { name, digest } = model.key().clone();
            ((name, Selector::Digest(digest)), self.fleet.answer_digest(model.key(), now))
        });
        tags.chain(digests).collect()
    }

    /// One line and one count a transition.
    fn note_stages(&mut self, now: Moment) {
        let mut stages = BTreeMap::<Stage, usize>::new();
        let mut shown = BTreeMap::new();
        for model in self.fleet.models() {
            let stage = model.stage();
            *stages.entry(stage).or_default() += 1;
            let before = self.outside.stages.get(model.key()).copied();
            let before = before.unwrap_or(Shown { stage: Stage::New, since: now });
            let since = if before.stage == stage { before.since } else { now };
            if before.stage != stage {
                note_transition(model, before, now);
            }
            shown.insert(model.key().clone(), Shown { stage, since });
        }
        self.outside.stages = shown;
        metrics::state(&stages, self.fleet.serving().is_reachable() == Some(true));
        metrics::dropped(self.fleet.counts());
    }

    fn publish_snapshot(&mut self, now: Moment) {
        self.preloaded |= self.fleet.preloads_settled(now);
        let snapshot = self.snapshot(now);
        self.outside.snapshot.send_if_modified(|last| {
            let changed = **last != snapshot;
            if changed {
                *last = Arc::new(snapshot);
            }
            changed
        });
    }

    fn snapshot(&self, now: Moment) -> Snapshot {
        let mut models = BTreeMap::<ModelName, ModelView>::new();
        for model in self.fleet.models() {
            let view = models.entry(model.key().name.clone()).or_default();
            view.versions.insert(model.key().digest, self.version_view(model));
        }
        for (key, tag) in self.fleet.tags() {
            let view = models.entry(key.name.clone()).or_default();
            view.tags.insert(key.tag.clone(), self.tag_view(tag, now));
        }
        for (name, view) in &mut models {
            view.image =
                self.world.names.image(name).map(|image| image.to_string()).unwrap_or_default();
        }
        let serving = self.fleet.serving();
        let reachable = serving.is_reachable() == Some(true);
        let engine = EngineView {
            reachable,
            restarts: serving.restarts(),
            reloading: serving.is_reloading(),
            failure: serving.failure().cloned(),
        };
        let models = models.into_iter().map(|(name, view)| (name, Arc::new(view)));
        Snapshot { models: models.collect(), engine, ready: self.preloaded && reachable }
    }

    fn version_view(&self, model: &ModelMachine) -> VersionView {
        let prepared = self.prepared.get(model.key());
        let selector = Selector::Digest(model.key().digest);
        let used = self.asked.get(&(model.key().name.clone(), selector));
        let used = used.and_then(|asked| asked.told).max(model.asked_at()).max(self.tag_use(model));
        VersionView {
            digest: model.key().digest,
            platform_digest: prepared.map(|prepared| prepared.platform_digest),
            stage: model.stage(),
            activity: model.activity(),
            servable: model.state().servable().cloned(),
            size_bytes: prepared.map_or(0, |prepared| prepared.size),
            last_used_at: used.map(|at| self.clock.wall(at)),
            failure: model.trouble().map(|trouble| self.failure_view(trouble)),
            history: model.history().map(|it| self.transition_view(it)).collect(),
        }
    }

    /// When a request by a tag that the version answers was last seen.
    fn tag_use(&self, model: &ModelMachine) -> Option<Moment> {
        let key = model.key();
        let tags = self
            .fleet
            .tags()
            .filter(|(tag, machine)| tag.name == key.name && machine.serving() == Some(key.digest));
        let told = tags.filter_map(|(tag, _)| {
            let selector = Selector::Tag(tag.tag.clone());
            self.asked.get(&(tag.name.clone(), selector))?.told
        });
        told.max()
    }

    fn tag_view(&self, tag: &TagMachine, now: Moment) -> TagView {
        TagView {
            serving: tag.serving(),
            registry: tag.registry(),
            followed: tag.is_followed(self.fleet.policy(), now),
            checked_at: tag.checked_at().map(|at| self.clock.wall(at)),
            failure: tag.trouble().map(|trouble| self.failure_view(trouble)),
        }
    }

    fn failure_view(&self, trouble: &Trouble) -> FailureView {
        FailureView {
            failure: trouble.failure.clone(),
            at: self.clock.wall(trouble.at),
            permanent: trouble.retry_at.is_none(),
            retry_at: trouble.retry_at.map(|at| self.clock.wall(at)),
        }
    }

    fn transition_view(&self, transition: &outrigger_core::model::Transition) -> TransitionView {
        TransitionView {
            at: self.clock.wall(transition.at),
            from: transition.from,
            to: transition.to,
            cause: transition.cause.clone().into_owned(),
        }
    }
}

fn route(live: &BTreeMap<ModelKey, Live>, answer: &Answer) -> Route {
    match answer {
        Answer::Waiting(failure) => Route::Waiting(failure.clone()),
        Answer::Refused(failure) => Route::Refused(failure.clone()),
        Answer::Ready(key, _) => match live.get(key).and_then(Live::routed) {
            Some(servable) => Route::Ready(servable),
            None => Route::Waiting(None),
        },
    }
}

fn note_transition(model: &ModelMachine, before: Shown, now: Moment) {
    metrics::moved(before.stage, model.stage(), now.since(before.since));
    let cause = model.history().last().map(|transition| transition.cause.clone());
    tracing::info!(
        model.name = %model.key().name,
        model.digest = %model.key().digest,
        state.from = %before.stage,
        state.to = %model.stage(),
        cause = cause.as_deref().unwrap_or_default(),
        "a model has changed its state"
    );
}

impl Outside {
    fn route(&self, routes: Routes) {
        self.routes.store(Arc::new(routes));
        self.routed.send_modify(|count| *count += 1);
    }

    /// Lets go of every servable and refuses all requests.
    pub(super) fn close(&self) {
        let closed = Routes { closed: Some(stopping()), ..Routes::default() };
        self.route(closed);
    }
}
