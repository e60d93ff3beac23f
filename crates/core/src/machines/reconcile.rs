//! Rules that depend on several machines at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Effect, Event, Machines, TagKey, Turn};
use crate::{
    Context, Digest, EngineId, ModelKey, ModelName, Moment, Selector, ServableId, ServableName,
    Tag,
    engine::{Condition, ToEngine},
    model::{self, ModelMachine},
    tags::{self, TagMachine},
};

impl Machines {
    /// Brings pins, candidates and expected names in line with the states of the machines.
    pub(super) fn reconcile(&mut self, turn: &mut Turn) {
        self.reconcile_canaries(turn);
        self.reconcile_pins(turn);
        self.reconcile_candidates(turn);
        self.reconcile_names(turn);
    }

    fn reconcile_pins(&self, turn: &mut Turn) {
        let held = self.held(turn.now);
        for (key, machine) in &self.models {
            if machine.is_pinned() && !held.contains(key) {
                turn.events.push_back(Event::Model(key.clone(), model::Event::Pin(false)));
            }
        }
        for key in held {
            if !self.models.get(&key).is_some_and(ModelMachine::is_pinned) {
                turn.events.push_back(Event::Model(key, model::Event::Pin(true)));
            }
        }
    }

    fn reconcile_candidates(&self, turn: &mut Turn) {
        for (key, tag) in &self.tags {
            let Some(digest) = tag.candidate() else { continue };
            let candidate = ModelKey { name: key.name.clone(), digest };
            if self.models.get(&candidate).and_then(ModelMachine::routed).is_some() {
                let available = tags::Event::Available(digest);
                turn.events.push_back(Event::Tag(key.clone(), available));
            }
        }
    }

    fn reconcile_names(&mut self, turn: &mut Turn) {
        // These results may still change while machines have events to handle.
        if !turn.events.is_empty() {
            return;
        }
        let context = turn.context(&self.policy, &self.versions);
        let mut expected: BTreeMap<EngineId, BTreeSet<ServableName>> = BTreeMap::new();
        for model in self.models.values().filter(|model| model.is_promising(&context)) {
            let name = &model.key().name;
            let engine = self.engine_of(model.key()).or_else(|| self.expected_engine(name));
            let Some(engine) = engine else { continue };
            expected.entry(engine.clone()).or_default().insert(ServableName::of(name));
        }
        for engine in self.engines.keys() {
            let names = expected.remove(engine).unwrap_or_default();
            let before = self.expected.entry(engine.clone()).or_default();
            if *before != names {
                before.clone_from(&names);
                turn.effects.push(Effect::Engine(engine.clone(), ToEngine::Expect(names)));
            }
        }
    }

    /// The engine that a version of `name` will most likely get: the engine of another version of
    /// that model, or else the only engine.
    pub(super) fn expected_engine(&self, name: &ModelName) -> Option<&EngineId> {
        let placed = self.models_of(name).find_map(|model| self.engine_of(model.key()));
        let only = || self.engines.keys().next().filter(|_| self.engines.len() == 1);
        placed.or_else(only)
    }

    /// The versions that a preload or a followed tag keeps up.
    pub fn held(&self, now: Moment) -> BTreeSet<ModelKey> {
        let followed = self.tags.iter().flat_map(|(key, tag)| {
            let pins = tag.pins(&self.policy, now);
            pins.map(|digest| ModelKey { name: key.name.clone(), digest })
        });
        followed.chain(self.pinned.iter().cloned()).collect()
    }

    /// Removes machines that can be dropped without loss of state.
    pub(super) fn forget(&mut self, turn: &mut Turn) {
        let context = Context {
            now: turn.now,
            jitter: turn.jitter,
            policy: &self.policy,
            versions: &self.versions,
        };
        let (last, changed) = (&mut self.forgotten, &mut self.changed);
        let placed = &mut self.placed;
        let mut forget = |name: &ModelName, attempt| {
            *last = (*last).max(attempt);
            changed.insert(name.clone());
        };
        self.tags.retain(|key, tag| {
            let forgettable = tag.is_forgettable(&context);
            forgettable.then(|| forget(&key.name, tag.last()));
            !forgettable
        });
        self.models.retain(|key, model| {
            let forgettable = model.is_forgettable(&context);
            if forgettable {
                forget(&key.name, model.last());
                placed.remove(key);
            }
            !forgettable
        });
    }

    /// The known versions that `selector` of `name` selects.
    pub(super) fn meant(&self, name: &ModelName, selector: &Selector) -> Vec<ModelKey> {
        let digests: Vec<Digest> = match selector {
            Selector::Digest(digest) => vec![*digest],
            Selector::Tag(tag) => {
                let key = TagKey { name: name.clone(), tag: tag.clone() };
                let tag = self.tags.get(&key);
                tag.into_iter()
                    .flat_map(|tag| tag.serving().into_iter().chain(tag.candidate()))
                    .collect()
            }
        };
        let keys = digests.into_iter().map(|digest| ModelKey { name: name.clone(), digest });
        keys.filter(|key| self.models.contains_key(key)).collect()
    }

    /// Whether `selector` of `name` has a machine.
    pub fn is_known(&self, name: &ModelName, selector: &Selector) -> bool {
        match selector {
            Selector::Digest(digest) => {
                self.models.contains_key(&ModelKey { name: name.clone(), digest: *digest })
            }
            Selector::Tag(tag) => {
                self.tags.contains_key(&TagKey { name: name.clone(), tag: tag.clone() })
            }
        }
    }

    /// Whether the limit of requested tags and digests that never worked is reached, so that no new
    /// one is accepted.
    pub fn is_full(&self) -> bool {
        let unproven = |tag: &&TagMachine| {
            tag.serving().is_none() && !tag.is_configured() && !tag.is_accompanying()
        };
        let tags = self.tags.values().filter(unproven).count();
        let new = |model: &&ModelMachine| model.stage() == crate::Stage::New && !model.is_pinned();
        tags + self.models.values().filter(new).count() >= self.policy.max_unproven
    }

    /// The next time at which a tick changes something.
    pub fn wakes_at(&self) -> Option<Moment> {
        let (policy, after) = (&self.policy, self.ticked_at);
        let models = self.models.values().filter_map(|model| model.wakes_at(policy, after));
        let tags = self.tags.values().filter_map(|tag| tag.wakes_at(policy, after));
        models.chain(tags).min()
    }
}

/// Read access.
impl Machines {
    /// The machines of all versions.
    pub fn models(&self) -> impl Iterator<Item = &ModelMachine> {
        self.models.values()
    }

    /// The machine of a version.
    pub fn model(&self, key: &ModelKey) -> Option<&ModelMachine> {
        self.models.get(key)
    }

    /// The machines of all tags.
    pub fn tags(&self) -> impl Iterator<Item = (&TagKey, &TagMachine)> {
        self.tags.iter()
    }

    /// The machine of a tag.
    pub fn tag(&self, key: &TagKey) -> Option<&TagMachine> {
        self.tags.get(key)
    }

    /// The names of all models.
    pub fn names(&self) -> BTreeSet<ModelName> {
        let models = self.models.keys().map(|key| &key.name);
        models.chain(self.tags.keys().map(|key| &key.name)).cloned().collect()
    }

    /// The machines of the versions of `name`.
    pub fn models_of<'a>(&'a self, name: &'a ModelName) -> impl Iterator<Item = &'a ModelMachine> {
        let first = ModelKey { name: name.clone(), digest: Digest::LEAST };
        let own = self.models.range(first..).take_while(move |(key, _)| key.name == *name);
        own.map(|(_, model)| model)
    }

    /// The machines of the tags of `name`.
    pub fn tags_of<'a>(
        &'a self,
        name: &'a ModelName,
    ) -> impl Iterator<Item = (&'a TagKey, &'a TagMachine)> {
        let first = TagKey { name: name.clone(), tag: Tag::least() };
        self.tags.range(first..).take_while(move |(key, _)| key.name == *name)
    }

    /// Names of models whose views may have changed since the last call; changes of
    /// [`Machines::outage`] are not included.
    pub fn take_changed(&mut self) -> BTreeSet<ModelName> {
        std::mem::take(&mut self.changed)
    }

    /// The engines with their conditions.
    pub fn engines(&self) -> &BTreeMap<EngineId, Condition> {
        &self.engines
    }

    /// Whether `engine` answered the last time it was asked.
    pub fn is_reachable(&self, engine: &EngineId) -> bool {
        self.engines.get(engine).is_some_and(Condition::is_reachable)
    }

    /// Times and limits.
    pub fn policy(&self) -> &crate::Policy {
        &self.policy
    }

    /// Events that were stale or unexpected.
    pub fn counts(&self) -> super::Counts {
        self.counts
    }

    /// The source of version numbers.
    pub fn versions(&self) -> &crate::Versions {
        &self.versions
    }

    /// The last version number assigned.
    pub fn last_version(&self) -> crate::Version {
        self.versions.last()
    }

    /// The model version that is loaded as the servable `id`.
    pub fn owner(&self, id: &ServableId) -> Option<&ModelKey> {
        self.ids.get(id)
    }

    /// Digests whose files must stay: those in use, and the last known good digest of each followed
    /// tag.
    pub fn in_use(&self, now: Moment) -> BTreeSet<Digest> {
        let busy = self.models.values().filter(|model| model.state().needs_files());
        let busy = busy.map(|model| model.key().digest);
        busy.chain(self.held(now).into_iter().map(|key| key.digest)).collect()
    }

    /// The state to store for the process that follows this one.
    pub fn legacy(&self) -> super::Legacy {
        let served =
            |(key, tag): (&TagKey, &TagMachine)| Some((key.clone(), tag.last_known_good()?));
        let loaded = self.models.values().filter_map(|model| {
            let id = model.state().servable().filter(|_| model.state().in_engine())?.clone();
            let engine = self.placed.get(model.key())?.clone();
            Some((model.key().clone(), super::Loaded { engine, id }))
        });
        let rejected = |(key, tag): (&TagKey, &TagMachine)| Some((key.clone(), tag.rejected()?));
        let promoted = |(key, tag): (&TagKey, &TagMachine)| Some((key.clone(), tag.promoted()?));
        super::Legacy {
            tags: self.tags.iter().filter_map(served).collect(),
            rejected: self.tags.iter().filter_map(rejected).collect(),
            promoted: self.tags.iter().filter_map(promoted).collect(),
            loaded: loaded.collect(),
        }
    }
}
