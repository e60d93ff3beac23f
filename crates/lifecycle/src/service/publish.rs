//! What others see: the routing table, and the snapshot.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use outrigger_core::{
    Failure, ModelKey, ModelName, Moment, Reason, Selector, Stage,
    fleet::{Answer, TagKey},
    model::{ModelMachine, Trouble},
    tags::TagMachine,
};

use super::{Answers, Asked, Outside, Service, Told};
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
    /// Publishes what has changed. The work is that of the names that changed,
    /// so that no name can slow another.
    pub(crate) fn publish(&mut self) {
        let now = self.clock.now();
        let mut changed = self.changed(now);
        self.try_canaries(|trials, cx| trials.renew(&changed, cx));
        changed.extend(self.trials.take_changed());
        changed.extend(self.fleet.take_changed());
        self.publish_routes(&changed, now);
        self.note_stages(&changed, now);
        self.trace_bring_ups(&changed);
        self.note_steps(&changed, now);
        self.forget_prepared();
        if !changed.is_empty() {
            self.show_canaries();
        }
        changed.extend(self.trials.take_changed());
        self.publish_snapshot(&changed, now);
    }

    /// Names that may look different since the last time.
    fn changed(&mut self, now: Moment) -> BTreeSet<ModelName> {
        let mut changed = self.fleet.take_changed();
        let outage = self.fleet.outage(now);
        if outage != self.outside.outage {
            self.outside.outage = outage;
            changed.extend(self.outside.answers.keys().cloned());
        }
        changed
    }

    fn publish_routes(&mut self, changed: &BTreeSet<ModelName>, now: Moment) {
        let full = self.fleet.is_full();
        let answers = changed.iter().map(|name| (name, self.answers(name, now)));
        let none = Answers::new();
        let differs = |(name, answers): &(&ModelName, Answers)| {
            self.outside.answers.get(*name).unwrap_or(&none) != answers
        };
        let answers: Vec<_> = answers.filter(differs).collect();
        if answers.is_empty() && full == self.outside.full {
            return;
        }
        let mut routes = Routes {
            models: self.outside.routes.load().models.clone(),
            closed: None,
            full: full
                .then(|| Failure::new(Reason::Overloaded, "too many unknown models are asked for")),
        };
        for (name, answers) in answers {
            self.renew_routes(&mut routes, name, answers);
        }
        self.live.retain(|_, live| !live.is_gone());
        self.outside.full = full;
        self.outside.route(routes);
    }

    fn answers(&self, name: &ModelName, now: Moment) -> Answers {
        let tags = self.fleet.tags_of(name).map(|(key, _)| {
            let answer = self.fleet.answer_tag(key, now);
            let arms = self.trials.arms(key, &answer, &self.trial_context(now));
            (Selector::Tag(key.tag.clone()), Told { answer, arms })
        });
        let digests = self.fleet.models_of(name).map(|model| {
            let key = model.key();
            let answer = self.fleet.answer_digest(key, now);
            (Selector::Digest(key.digest), Told { answer, arms: None })
        });
        tags.chain(digests).collect()
    }

    fn renew_routes(&mut self, routes: &mut Routes, name: &ModelName, answers: Answers) {
        let mut model = ModelRoutes::default();
        for (selector, told) in &answers {
            let asked = self.asked.entry((name.clone(), selector.clone()));
            let asked = asked.or_insert_with(|| Asked { at: Arc::default(), told: None });
            let asked = Arc::clone(&asked.at);
            let entry = Entry { route: self.route_of(name, selector, told), asked };
            match selector {
                Selector::Tag(tag) => drop(model.tags.insert(tag.clone(), entry)),
                Selector::Digest(digest) => drop(model.digests.insert(*digest, entry)),
            }
        }
        for selector in self.outside.answers.remove(name).into_iter().flatten().map(|it| it.0) {
            if !answers.contains_key(&selector) {
                self.asked.remove(&(name.clone(), selector));
            }
        }
        if answers.is_empty() {
            routes.models.remove(name);
            return;
        }
        routes.models.insert(name.clone(), Arc::new(model));
        self.outside.answers.insert(name.clone(), answers);
    }

    fn route_of(&self, name: &ModelName, selector: &Selector, told: &Told) -> Route {
        if let (Selector::Tag(tag), Some(arms), Answer::Ready(live, _)) =
            (selector, &told.arms, &told.answer)
        {
            let key = TagKey { name: name.clone(), tag: tag.clone() };
            let routed = |key| self.live.get(key).and_then(Live::routed);
            if let (Some(live), Some(canary)) = (routed(live), routed(&arms.canary))
                && let Some(split) = self.trials.split(&key, arms, live, canary)
            {
                return Route::Split(Arc::new(split));
            }
        }
        route(&self.live, &told.answer)
    }

    /// One line and one count a transition.
    fn note_stages(&mut self, changed: &BTreeSet<ModelName>, now: Moment) {
        for name in changed {
            let before = self.outside.stages.remove(name).unwrap_or_default();
            let mut shown = BTreeMap::new();
            for model in self.fleet.models_of(name) {
                let (digest, stage) = (model.key().digest, model.stage());
                let before = before.get(&digest).copied();
                let before = before.unwrap_or(Shown { stage: Stage::New, since: now });
                let since = if before.stage == stage { before.since } else { now };
                if before.stage != stage {
                    note_transition(model, before, now);
                }
                shown.insert(digest, Shown { stage, since });
            }
            if !shown.is_empty() {
                self.outside.stages.insert(name.clone(), shown);
            }
        }
        let mut stages = BTreeMap::<Stage, usize>::new();
        for shown in self.outside.stages.values().flat_map(BTreeMap::values) {
            *stages.entry(shown.stage).or_default() += 1;
        }
        metrics::state(&stages, self.fleet.serving().is_reachable() == Some(true));
        metrics::dropped(self.fleet.counts());
    }

    fn publish_snapshot(&mut self, changed: &BTreeSet<ModelName>, now: Moment) {
        self.preloaded |= self.fleet.preloads_settled(now);
        let engine = self.engine_view();
        let ready = self.preloaded && engine.reachable;
        let last = self.outside.snapshot.borrow().clone();
        let views = changed.iter().map(|name| (name, self.model_view(name, now)));
        let views: Vec<_> = views
            .filter(|(name, view)| last.models.get(*name).map(|it| &**it) != view.as_ref())
            .collect();
        let steps = self.steps.oldest().into_iter();
        let steps: BTreeMap<_, _> =
            steps.map(|(step, since)| (step, self.clock.instant(since))).collect();
        let others = engine == last.engine && ready == last.ready && steps == last.steps;
        if views.is_empty() && others {
            return;
        }
        let mut models = last.models.clone();
        for (name, view) in views {
            match view {
                Some(view) => drop(models.insert(name.clone(), Arc::new(view))),
                None => drop(models.remove(name)),
            }
        }
        self.outside.snapshot.send_replace(Arc::new(Snapshot { models, engine, ready, steps }));
    }

    fn engine_view(&self) -> EngineView {
        let serving = self.fleet.serving();
        EngineView {
            reachable: serving.is_reachable() == Some(true),
            restarts: serving.restarts(),
            reloading: serving.is_reloading(),
            failure: serving.failure().cloned(),
        }
    }

    /// A model as others see it; `None` when nothing is known of it.
    fn model_view(&self, name: &ModelName, now: Moment) -> Option<ModelView> {
        let versions = self.fleet.models_of(name);
        let versions = versions.map(|model| (model.key().digest, self.version_view(model)));
        // That a tag has no canary is normal, and not worth a word.
        let named = |(_, tag): &(&TagKey, &TagMachine)| {
            let nobody = tag.is_accompanying() && !tag.is_wanted(self.fleet.policy(), now);
            !nobody || tag.registry().or(tag.serving()).is_some()
        };
        let tags = self.fleet.tags_of(name).filter(named);
        let tags = tags.map(|(key, tag)| (key.tag.clone(), self.tag_view(key, tag, now)));
        let mut view =
            ModelView { image: String::new(), tags: tags.collect(), versions: versions.collect() };
        if view.tags.is_empty() && view.versions.is_empty() {
            return None;
        }
        view.image =
            self.world.names.image(name).map(|image| image.to_string()).unwrap_or_default();
        Some(view)
    }

    fn version_view(&self, model: &ModelMachine) -> VersionView {
        let kept = self.kept.get(model.key());
        let selector = Selector::Digest(model.key().digest);
        let used = self.asked.get(&(model.key().name.clone(), selector));
        let used = used.and_then(|asked| asked.told).max(model.asked_at()).max(self.tag_use(model));
        VersionView {
            digest: model.key().digest,
            platform_digest: kept.map(|kept| kept.platform_digest),
            stage: model.stage(),
            activity: model.activity(),
            servable: model.state().servable().cloned(),
            size_bytes: kept.map_or(0, |kept| kept.size),
            last_used_at: used.map(|at| self.clock.wall(at)),
            failure: model.trouble().map(|trouble| self.failure_view(trouble)),
            replayed: self.replayed.get(model.key()).cloned(),
            history: model.history().map(|it| self.transition_view(it)).collect(),
        }
    }

    /// When a request by a tag that the version answers was last seen.
    fn tag_use(&self, model: &ModelMachine) -> Option<Moment> {
        let key = model.key();
        let tags = self.fleet.tags_of(&key.name);
        let tags = tags.filter(|(_, machine)| machine.serving() == Some(key.digest));
        let told = tags.filter_map(|(tag, _)| {
            let selector = Selector::Tag(tag.tag.clone());
            self.asked.get(&(tag.name.clone(), selector))?.told
        });
        told.max()
    }

    fn tag_view(&self, key: &TagKey, tag: &TagMachine, now: Moment) -> TagView {
        TagView {
            serving: tag.serving(),
            registry: tag.registry(),
            followed: tag.is_followed(self.fleet.policy(), now),
            checked_at: tag.checked_at().map(|at| self.clock.wall(at)),
            failure: tag.trouble().map(|trouble| self.failure_view(trouble)),
            canary: self.trials.canary_of(key),
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
        Answer::Retrying(failure, at) => Route::Retrying(failure.clone(), *at),
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
