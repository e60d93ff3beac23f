//! The state of one host.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use outrigger_core::Moment;
use tokio::time::Instant;

use crate::policy::{Aimd, Ejection, EjectionSettings, Limiter, Place};

/// The most models that a client remembers for a host.
const MODELS: usize = 1024;

/// A model with its version, as requests name them.
pub(crate) type Key = (Arc<str>, Option<Arc<str>>);

/// The state of one host.
pub(super) struct State {
    pub(super) limiter: Box<dyn Limiter>,
    pub(super) in_flight: usize,
    /// The time of the last call that was answered.
    pub(super) answered: Option<Instant>,
    /// The number of the last attempt, so that equal hosts take turns.
    pub(super) used: u64,
    /// The largest message that the host takes in bytes, as its refusals have named it.
    pub(super) most: Option<u64>,
    /// True if the host is known to answer nothing.
    pub(super) is_away: bool,
    /// The models that the host is known to lack.
    absent: HashSet<Key>,
    /// The results of calls by model: one that fails says nothing about others.
    models: HashMap<Key, Model>,
    settings: EjectionSettings,
}

struct Model {
    ejection: Ejection,
    /// The version that answered last.
    version: Option<String>,
}

impl State {
    pub(super) fn new(most: usize, settings: EjectionSettings) -> Self {
        Self {
            limiter: Box::new(Aimd::new(most, most)),
            in_flight: 0,
            answered: None,
            used: 0,
            most: None,
            is_away: false,
            absent: HashSet::new(),
            models: HashMap::new(),
            settings,
        }
    }

    /// The place of the host among those that get the calls of a model.
    pub(super) fn place(&self, key: &Key, now: Moment) -> Place {
        if self.is_away || self.absent.contains(key) {
            return Place::Out(now);
        }
        self.models.get(key).map_or(Place::In, |model| model.ejection.place(now))
    }

    /// True if nothing keeps a call of the model from the host but that it is known to lack it.
    pub(super) fn only_lacks(&self, key: &Key) -> bool {
        !self.is_away && self.absent.contains(key)
    }

    pub(super) fn is_free(&self) -> bool {
        self.in_flight < self.limiter.limit()
    }

    /// The calls in flight for the limit.
    pub(super) fn load(&self) -> usize {
        self.in_flight * 1024 / self.limiter.limit()
    }

    /// True if the last call of the model failed.
    pub(super) fn is_failing(&self, key: &Key) -> bool {
        self.models.get(key).is_some_and(|model| model.ejection.is_failing())
    }

    /// The ejection for a model; `None` if there are too many models.
    pub(super) fn ejection(&mut self, key: &Key) -> Option<&mut Ejection> {
        Some(&mut self.model(key)?.ejection)
    }

    fn model(&mut self, key: &Key) -> Option<&mut Model> {
        if self.models.len() >= MODELS && !self.models.contains_key(key) {
            return None;
        }
        let settings = self.settings;
        let model = || Model { ejection: Ejection::new(settings), version: None };
        Some(self.models.entry(key.clone()).or_insert_with(model))
    }

    /// Records the version that answered. Returns the one before, if it was another.
    pub(super) fn answered(&mut self, key: &Key, version: &str) -> Option<String> {
        let last = &mut self.model(key)?.version;
        match last {
            Some(last) if last == version => None,
            last => last.replace(version.to_owned()),
        }
    }

    /// Records whether the host answers at all. One that is back gets a call as a trial at once.
    pub(super) fn set_away(&mut self, is_away: bool, now: Moment) {
        if std::mem::replace(&mut self.is_away, is_away) && !is_away {
            self.models.values_mut().for_each(|model| model.ejection.may_return(now));
        }
    }

    /// Records whether the host lacks a model. One that has loaded it begins anew.
    pub(super) fn set_absent(&mut self, key: &Key, is_absent: bool) {
        if is_absent {
            self.absent.insert(key.clone());
        } else if self.absent.remove(key) {
            self.models.remove(key);
        }
    }

    /// Forgets a model that gets no calls any more.
    pub(super) fn forget(&mut self, key: &Key) {
        self.absent.remove(key);
        self.models.remove(key);
    }

    /// The models whose calls the host does not get because it failed some.
    pub(super) fn ejected(&self, now: Moment) -> impl Iterator<Item = &Arc<str>> {
        let out = move |model: &Model| model.ejection.place(now) != Place::In;
        self.models.iter().filter(move |(_, model)| out(model)).map(|((name, _), _)| name)
    }
}
