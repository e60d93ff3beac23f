//! The routing table, which requests read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arc_swap::ArcSwap;
use outrigger_core::{
    EngineId, Failure, ModelName, Moment, Reason, Selector,
    machines::{Answer, Machines, TagKey},
    model::ModelMachine,
};
use outrigger_score::Outage;
use outrigger_trials::Arms;
use tokio::sync::watch;

use super::inputs::Inputs;
use crate::{
    flights::Flights,
    handle::stopping,
    routes::{Entry, LastAsked, ModelRoutes, Route, Routes},
    versions::VersionData,
};

/// The routing table, and the state it was built from.
#[derive(Default)]
pub(crate) struct Routing {
    pub(crate) routes: Arc<ArcSwap<Routes>>,
    /// Counts announcements of new `routes`.
    routed: watch::Sender<u64>,
    answers: BTreeMap<ModelName, Answers>,
    full: bool,
    /// The answers to requests for each engine that is down.
    outages: BTreeMap<EngineId, Answer>,
    asked: BTreeMap<ModelName, BTreeMap<Selector, Asked>>,
}

/// The answers to requests for one model.
type Answers = BTreeMap<Selector, Routed>;

/// The answer to requests for one tag or digest.
#[derive(Debug, Clone, PartialEq)]
struct Routed {
    answer: Answer,
    /// The two versions that share the traffic, if it is split.
    arms: Option<Arms>,
}

/// The last use of a selector, and the time up to which uses were reported to the machines.
struct Asked {
    at: Arc<LastAsked>,
    reported: Option<Moment>,
}

impl Routing {
    /// Subscribes to the number of announcements of a new routing table.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.routed.subscribe()
    }

    /// Updates the outages of the engines, which `flights` follow. Returns the models whose answers
    /// they may change.
    pub(crate) fn set_outages(
        &mut self,
        machines: &Machines,
        flights: &Flights,
        now: Moment,
    ) -> Vec<ModelName> {
        let mut changed = Vec::new();
        for engine in machines.engines().keys() {
            let outage = machines.outage(engine, now);
            if outage.as_ref() == self.outages.get(engine) {
                continue;
            }
            let models = machines.models().map(ModelMachine::key);
            let placed = models.filter(|key| machines.engine_of(key) == Some(engine));
            changed.extend(placed.map(|key| key.name.clone()));
            flights.set_outage(engine, outage.as_ref().and_then(outage_of));
            match outage {
                Some(outage) => self.outages.insert(engine.clone(), outage),
                None => self.outages.remove(engine),
            };
        }
        changed
    }

    /// Takes the uses of these models by requests since the last call.
    pub(crate) fn take_used(
        &mut self,
        models: &BTreeSet<ModelName>,
        now: Moment,
    ) -> Vec<(ModelName, Selector, Moment)> {
        let mut used = Vec::new();
        for name in models {
            for (selector, asked) in self.asked.get_mut(name).into_iter().flatten() {
                let at = asked.at.get(now);
                if asked.reported < at {
                    asked.reported = at;
                    used.extend(at.map(|at| (name.clone(), selector.clone(), at)));
                }
            }
        }
        used
    }

    /// The last reported use of a tag or digest.
    pub(crate) fn last_used(&self, name: &ModelName, selector: &Selector) -> Option<Moment> {
        self.asked.get(name)?.get(selector)?.reported
    }

    /// Publishes the routes of models whose answers have changed. Returns true if any have: then
    /// [`Self::announce`] must follow.
    pub(crate) fn publish(&mut self, changed: &BTreeSet<ModelName>, inputs: &Inputs<'_>) -> bool {
        let full = inputs.machines.is_full(inputs.now);
        let answers = changed.iter().map(|name| (name, answers(name, inputs)));
        let none = Answers::new();
        let differs = |(name, answers): &(&ModelName, Answers)| {
            self.answers.get(*name).unwrap_or(&none) != answers
        };
        let answers: Vec<_> = answers.filter(differs).collect();
        if answers.is_empty() && full == self.full {
            return false;
        }
        let mut routes = Routes {
            models: self.routes.load().models.clone(),
            closed: None,
            full: full
                .then(|| Failure::new(Reason::Overloaded, "too many unknown models are asked for")),
        };
        for (name, answers) in answers {
            self.renew(&mut routes, name, answers, inputs);
        }
        self.full = full;
        self.routes.store(Arc::new(routes));
        true
    }

    /// Wakes the requests that wait for a new routing table.
    pub(crate) fn announce(&self) {
        self.routed.send_modify(|count| *count += 1);
    }

    fn renew(
        &mut self,
        routes: &mut Routes,
        name: &ModelName,
        answers: Answers,
        inputs: &Inputs<'_>,
    ) {
        let mut model = ModelRoutes::default();
        let known = self.asked.entry(name.clone()).or_default();
        known.retain(|selector, _| answers.contains_key(selector));
        for (selector, routed) in &answers {
            let asked = known.entry(selector.clone());
            let asked = asked.or_insert_with(|| Asked { at: Arc::default(), reported: None });
            let asked = Arc::clone(&asked.at);
            let entry = Entry { route: route_of(name, selector, routed, inputs), asked };
            match selector {
                Selector::Tag(tag) => drop(model.tags.insert(tag.clone(), entry)),
                Selector::Digest(digest) => drop(model.digests.insert(*digest, entry)),
            }
        }
        if answers.is_empty() {
            self.answers.remove(name);
            self.asked.remove(name);
            routes.models.remove(name);
            return;
        }
        routes.models.insert(name.clone(), Arc::new(model));
        self.answers.insert(name.clone(), answers);
    }

    /// Releases every servable and refuses all requests.
    pub(crate) fn close(&self) {
        let closed = Routes { closed: Some(stopping()), ..Routes::default() };
        self.routes.store(Arc::new(closed));
        self.announce();
    }
}

/// The outage that the calls in an engine with this answer meet.
fn outage_of(answer: &Answer) -> Option<Outage> {
    match answer {
        Answer::Waiting(Some(failure)) => {
            Some(Outage { failure: failure.clone(), is_over_patience: false })
        }
        Answer::Refused(failure) => {
            Some(Outage { failure: failure.clone(), is_over_patience: true })
        }
        _ => None,
    }
}

fn answers(name: &ModelName, inputs: &Inputs<'_>) -> Answers {
    let Inputs { machines, trials, now, .. } = *inputs;
    let tags = machines.tags_of(name).map(|(key, _)| {
        let answer = machines.answer_tag(key, now);
        let arms = trials.arms(key, &answer, &inputs.trial_context());
        (Selector::Tag(key.tag.clone()), Routed { answer, arms })
    });
    let digests = machines.models_of(name).map(|model| {
        let key = model.key();
        let answer = machines.answer_digest(key, now);
        (Selector::Digest(key.digest), Routed { answer, arms: None })
    });
    tags.chain(digests).collect()
}

fn route_of(name: &ModelName, selector: &Selector, routed: &Routed, inputs: &Inputs<'_>) -> Route {
    let Inputs { versions, trials, .. } = *inputs;
    if let (Selector::Tag(tag), Some(arms), Answer::Ready(live, _)) =
        (selector, &routed.arms, &routed.answer)
    {
        let key = TagKey { name: name.clone(), tag: tag.clone() };
        if let (Some(live), Some(canary)) = (versions.routed(live), versions.routed(&arms.canary))
            && let Some(split) = trials.split(&key, arms, live, canary)
        {
            return Route::Split(Arc::new(split));
        }
    }
    route(versions, &routed.answer)
}

fn route(versions: &VersionData, answer: &Answer) -> Route {
    match answer {
        Answer::Waiting(failure) => Route::Waiting(failure.clone()),
        Answer::Retrying(failure, at) => Route::Retrying(failure.clone(), *at),
        Answer::Refused(failure) => Route::Refused(failure.clone()),
        Answer::Ready(key, _) => match versions.routed(key) {
            Some(servable) => Route::Ready(servable),
            None => Route::Waiting(None),
        },
    }
}
