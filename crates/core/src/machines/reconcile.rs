//! Rules that depend on several machines at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Event, Machines, TagKey, Turn};
use crate::{
    Digest, EngineId, ModelKey, ModelName, Moment, Selector, ServableId, Tag,
    engine::Condition,
    model::{self, ModelMachine},
    tags::{self, TagMachine},
};

impl Machines {
    /// Brings pins, candidates and facts in line with the states of the machines that have changed.
    pub(super) fn reconcile(&mut self, turn: &mut Turn) {
        let dirty = std::mem::take(&mut self.dirty);
        for name in &dirty {
            let machines = self.tags_of(name).count() + self.models_of(name).count();
            self.counts.examined += machines as u64;
            self.reconcile_listed(turn, name);
            self.reconcile_canaries(turn, name);
            self.reconcile_pins(turn, name);
            self.reconcile_candidates(turn, name);
            self.reconcile_latest(turn, name);
            // Slots follow from pins, so these come first.
            if turn.events.is_empty() {
                self.reconcile_slots(turn, name);
            }
        }
        // While machines have events to handle, the facts may still change.
        if !turn.events.is_empty() {
            return self.dirty.extend(dirty);
        }
        dirty.iter().for_each(|name| self.refresh(turn, name));
    }

    fn reconcile_pins(&self, turn: &mut Turn, name: &ModelName) {
        let held: BTreeSet<_> = self.held_of(name, turn.now).collect();
        for model in self.models_of(name) {
            if model.is_pinned() && !held.contains(model.key()) {
                let released = Event::Model(model.key().clone(), model::Event::Pin(false));
                turn.events.push_back(released);
            }
        }
        for key in held {
            if !self.models.get(&key).is_some_and(ModelMachine::is_pinned) {
                turn.events.push_back(Event::Model(key, model::Event::Pin(true)));
            }
        }
    }

    fn reconcile_candidates(&self, turn: &mut Turn, name: &ModelName) {
        for (key, tag) in self.tags_of(name) {
            let Some(digest) = tag.candidate() else { continue };
            let candidate = ModelKey { name: key.name.clone(), digest };
            if self.models.get(&candidate).and_then(ModelMachine::routed).is_some() {
                let available = tags::Event::Available(digest);
                turn.events.push_back(Event::Tag(key.clone(), available));
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

    /// The versions of `name` that a preload or a followed tag keeps up.
    pub(crate) fn held_of<'a>(
        &'a self,
        name: &'a ModelName,
        now: Moment,
    ) -> impl Iterator<Item = ModelKey> + use<'a> {
        let followed = self.tags_of(name).flat_map(move |(key, tag)| {
            let pins = tag.pins(&self.policy, now);
            pins.map(|digest| ModelKey { name: key.name.clone(), digest })
        });
        followed.chain(self.pinned_of(name).cloned())
    }

    /// The versions of `name` that the configuration keeps up.
    pub(super) fn pinned_of<'a>(
        &'a self,
        name: &'a ModelName,
    ) -> impl Iterator<Item = &'a ModelKey> + use<'a> {
        let first = ModelKey { name: name.clone(), digest: Digest::LEAST };
        self.pinned.range(first..).take_while(move |key| key.name == *name)
    }

    /// Removes machines of `name` that can be dropped without loss of state.
    pub(super) fn forget(&mut self, turn: &Turn, name: &ModelName) {
        let context = turn.context(&self.policy, &self.versions);
        let tags = self.tags_of(name).filter(|(_, tag)| tag.is_forgettable(&context));
        let tags: Vec<_> = tags.map(|(key, _)| key.clone()).collect();
        let models = self.models_of(name).filter(|model| model.is_forgettable(&context));
        let models: Vec<_> = models.map(|model| model.key().clone()).collect();
        if !tags.is_empty() || !models.is_empty() {
            self.changed.insert(name.clone());
        }
        tags.iter().for_each(|key| drop(self.drop_tag(key)));
        models.iter().for_each(|key| self.drop_model(key));
    }

    /// Removes the machine of a tag. Returns the canary tags that were followed along with it.
    pub(super) fn drop_tag(&mut self, key: &TagKey) -> Vec<TagKey> {
        let last = self.tags.remove(key).map(|tag| tag.last());
        self.forgotten = self.forgotten.max(last.unwrap_or_default());
        self.forget_canaries(key)
    }

    /// Removes the machine of a version.
    pub(super) fn drop_model(&mut self, key: &ModelKey) {
        let last = self.models.remove(key).map(|model| model.last());
        self.forgotten = self.forgotten.max(last.unwrap_or_default());
        self.placed.remove(key);
        self.unwatch(key);
        let sharing = self.sharing.entry(key.digest).or_default();
        sharing.remove(&key.name);
        if sharing.is_empty() {
            self.sharing.remove(&key.digest);
        }
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
        of_name(&self.tags, name)
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

    /// The versions in the engines by the messages with them; `None` in release builds.
    pub(crate) fn exchanged(&self) -> Option<&super::exchanged::Exchanged> {
        cfg!(debug_assertions).then_some(&self.exchanged)
    }

    /// The state to store for the process that follows this one.
    pub fn legacy(&self) -> super::Legacy {
        let mut legacy = super::Legacy::default();
        for mut part in self.names().iter().map(|name| self.legacy_of(name)) {
            legacy.tags.append(&mut part.tags);
            legacy.rejected.append(&mut part.rejected);
            legacy.promoted.append(&mut part.promoted);
            legacy.loaded.append(&mut part.loaded);
        }
        legacy
    }
}

/// The entries of the tags of `name`.
pub fn of_name<'a, T>(
    tags: &'a BTreeMap<TagKey, T>,
    name: &'a ModelName,
) -> impl Iterator<Item = (&'a TagKey, &'a T)> + use<'a, T> {
    let first = TagKey { name: name.clone(), tag: Tag::least() };
    tags.range(first..).take_while(move |(key, _)| key.name == *name)
}
