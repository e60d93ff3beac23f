//! All machines of one engine together: what one machine wants of another is
//! handed over here, what it wants of the world comes out as effects.

mod answer;
mod canaries;
mod demand;
mod exchange;
mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use answer::Answer;

use crate::{
    Attempt, Context, Digest, EngineId, Failure, ModelKey, ModelName, Moment, Outcome, Policy,
    Selector, ServableId, ServableName, Tag, Versions,
    engine::{Condition, FromEngine, ToEngine},
    invariants,
    model::{self, ModelMachine},
    tags::{self, TagMachine},
};

/// All machines of one control plane, and what they know of the engines.
#[derive(Debug)]
pub struct Fleet {
    policy: Policy,
    versions: Versions,
    models: BTreeMap<ModelKey, ModelMachine>,
    tags: BTreeMap<TagKey, TagMachine>,
    engines: BTreeMap<EngineId, Condition>,
    /// The engine of each version: known when the version has been prepared.
    placed: BTreeMap<ModelKey, EngineId>,
    /// Versions that are up whatever happens: digests configured to be preloaded.
    pinned: BTreeSet<ModelKey>,
    /// The tags that are followed beside others; `None`: none are.
    canaries: Option<canaries::Canaries>,
    /// Which model a servable is, from its publication until it is gone.
    ids: BTreeMap<ServableId, ModelKey>,
    /// The names that each engine was last told to expect.
    expected: BTreeMap<EngineId, BTreeSet<ServableName>>,
    ticked_at: Moment,
    /// The last attempt of any machine that was forgotten: one that comes back
    /// begins after it, and mistakes nothing for its own.
    forgotten: Attempt,
    /// Names of which something may look different from outside.
    changed: BTreeSet<ModelName>,
    counts: Counts,
}

/// A tag of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagKey {
    /// The model's name.
    pub name: ModelName,
    /// The tag.
    pub tag: Tag,
}

/// Events by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Completions of earlier attempts.
    pub stale: u64,
    /// Events that should not have been possible.
    pub unexpected: u64,
}

/// What happens to the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A request wants a model that is not there.
    Ask(ModelName, Selector),
    /// Requests used these, last at those times. All that were used since the
    /// last time in one event: else one could be found idle before it is told.
    Used(Vec<(ModelName, Selector, Moment)>),
    /// Bring it up now, whatever failed before.
    Load(ModelName, Selector),
    /// Take it down.
    Unload {
        /// The model.
        name: ModelName,
        /// Which version of it.
        selector: Selector,
        /// Whether to delete its files, too.
        delete: bool,
    },
    /// The store deleted the files of this digest to make room.
    Evicted(Digest),
    /// Something happens to a version.
    Model(ModelKey, model::Event),
    /// Something happens to a tag.
    Tag(TagKey, tags::Event),
    /// An engine reports about a version.
    Engine(EngineId, FromEngine),
    /// An engine is doing differently.
    Condition(EngineId, Condition),
}

/// What the fleet wants done. The effects of one event are in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Something about a version: neither `Add` nor `Remove`.
    Model(ModelKey, model::Effect),
    /// Ask the registry for the digest of a tag.
    Resolve(TagKey, Attempt),
    /// From now on, the tag is answered by that digest.
    Switched(TagKey, Digest),
    /// The engine could not load a version, or has unloaded it: for the record.
    LoadFailed(ModelKey, Failure),
    /// A message to an engine.
    Engine(EngineId, ToEngine),
}

/// What an earlier process has left, as read from the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Legacy {
    /// What the tags were answered by.
    pub tags: BTreeMap<TagKey, Digest>,
    /// What was tried as a canary and is not wanted any more.
    pub rejected: BTreeMap<TagKey, Digest>,
    /// What the registry named, and what was promoted in its place.
    pub promoted: BTreeMap<TagKey, (Digest, Digest)>,
    /// Versions that an engine had loaded or was loading; their files exist.
    pub loaded: BTreeMap<ModelKey, Loaded>,
}

/// A version in an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The engine.
    pub engine: EngineId,
    /// What the version is called there.
    pub id: ServableId,
}

impl Fleet {
    /// No models, and these engines. `versions` may be shared with the engines.
    pub fn new(
        policy: Policy,
        versions: Versions,
        engines: impl IntoIterator<Item = EngineId>,
    ) -> Self {
        let engines = engines.into_iter().map(|engine| (engine, Condition::default()));
        Self {
            policy,
            versions,
            models: BTreeMap::new(),
            tags: BTreeMap::new(),
            engines: engines.collect(),
            placed: BTreeMap::new(),
            pinned: BTreeSet::new(),
            canaries: None,
            ids: BTreeMap::new(),
            expected: BTreeMap::new(),
            // So that the first tick finds everything due.
            ticked_at: Moment::default(),
            forgotten: Attempt::default(),
            changed: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Follows a tag for ever. To be called before any event.
    pub fn follow(&mut self, key: TagKey, now: Moment) {
        self.changed.insert(key.name.clone());
        self.tags.insert(key, TagMachine::new(true, self.forgotten, now));
    }

    /// Keeps a version up for ever. To be called before any event.
    pub fn pin(&mut self, key: ModelKey) {
        self.pinned.insert(key);
    }

    /// Takes over what an earlier process has left. To be called after `follow`
    /// and before any event.
    pub fn adopt(&mut self, legacy: Legacy, now: Moment) {
        for (key, serving) in legacy.tags {
            let configured = self.tags.contains_key(&key);
            self.changed.insert(key.name.clone());
            // One that was idle stays so: its files are on their way out.
            let version = ModelKey { name: key.name.clone(), digest: serving };
            let asked_at = legacy.loaded.contains_key(&version).then_some(now);
            let rejected = legacy.rejected.get(&key).copied();
            let promoted = legacy.promoted.get(&key).copied();
            let tag = TagMachine::adopted(configured, serving, asked_at, now);
            self.tags.insert(key, tag.tried(rejected, promoted));
        }
        for (key, Loaded { engine, id }) in legacy.loaded {
            self.placed.insert(key.clone(), engine);
            self.ids.insert(id.clone(), key.clone());
            self.changed.insert(key.name.clone());
            self.models.insert(key.clone(), ModelMachine::adopted(key, id, now));
        }
    }

    /// Handles an event. `jitter` is a random number from 0 to 1.
    pub fn handle(&mut self, now: Moment, jitter: f64, event: Event) -> Vec<Effect> {
        let mut turn = Turn { now, jitter, events: VecDeque::from([event]), effects: Vec::new() };
        while let Some(event) = turn.events.pop_front() {
            self.step(&mut turn, event);
            if turn.events.is_empty() {
                self.reconcile(&mut turn);
            }
        }
        if cfg!(debug_assertions) {
            self.check(&turn);
        }
        turn.effects
    }

    /// Panics when an invariant does not hold.
    fn check(&self, turn: &Turn) {
        assert_eq!(invariants::check(self), Ok(()));
        for effect in &turn.effects {
            assert_eq!(invariants::check_effect(self, turn.now, effect), Ok(()), "{effect:?}");
        }
    }

    fn step(&mut self, turn: &mut Turn, event: Event) {
        match event {
            Event::Tick => self.tick(turn),
            Event::Ask(name, selector) => self.ask(turn, name, selector, false),
            Event::Load(name, selector) => self.ask(turn, name, selector, true),
            Event::Used(used) => self.used(turn, used),
            Event::Unload { name, selector, delete } => self.unload(turn, &name, &selector, delete),
            Event::Evicted(digest) => self.evicted(turn, digest),
            Event::Model(key, event) => self.model_event(turn, key, event),
            Event::Tag(key, event) => self.tag_event(turn, key, event),
            Event::Engine(_, message) => self.engine_event(turn, message),
            Event::Condition(engine, condition) => drop(self.engines.insert(engine, condition)),
        }
    }
}

/// The handling of one event and of those that follow from it.
struct Turn {
    now: Moment,
    jitter: f64,
    events: VecDeque<Event>,
    effects: Vec<Effect>,
}

impl Turn {
    fn context<'a>(&self, policy: &'a Policy, versions: &'a Versions) -> Context<'a> {
        Context { now: self.now, jitter: self.jitter, policy, versions }
    }
}

impl Counts {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Handled => {}
            Outcome::Stale => self.stale += 1,
            Outcome::Unexpected => {
                debug_assert!(false, "an event that should not be possible");
                self.unexpected += 1;
            }
        }
    }
}
