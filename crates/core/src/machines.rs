//! All machines of one control plane, as one value: it passes messages between machines and returns
//! requests to the outside as effects.

mod answer;
mod canaries;
mod configure;
mod demand;
mod exchange;
mod exchanged;
mod index;
mod limits;
mod listed;
mod reconcile;
mod rollover;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

pub use answer::Answer;
pub use canaries::CanaryTags;
pub use listed::{Latest, Listed};
pub use reconcile::of_name;
pub use watch::Suspects;

use demand::Demand;
use exchanged::Exchanged;

use crate::{
    Attempt, Context, Digest, EngineId, Failure, ModelKey, ModelName, Moment, Outcome, Policy,
    Selector, ServableId, Tag, Versions,
    crashes::CutCalls,
    engine::{Condition, FromEngine, ToEngine},
    invariants,
    model::{self, ModelMachine},
    tags::{self, TagMachine},
};

/// All machines of one control plane, and the state of the engines as they reported it.
#[derive(Debug)]
pub struct Machines {
    policy: Policy,
    versions: Versions,
    models: BTreeMap<ModelKey, ModelMachine>,
    tags: BTreeMap<TagKey, TagMachine>,
    engines: BTreeMap<EngineId, Condition>,
    /// The engine of each version, known from the version's preparation on.
    placed: BTreeMap<ModelKey, EngineId>,
    /// Versions that are always up: digests configured to be preloaded.
    pinned: BTreeSet<ModelKey>,
    /// Models of which an engine has one version at a time, each with the selector of requests that
    /// name neither tag nor digest.
    replaced: BTreeMap<ModelName, Selector>,
    /// The tags of each model whose source lists them.
    listed: BTreeMap<ModelName, Listed>,
    /// The canary tags that are followed along with other tags; `None` if canaries are off.
    canaries: Option<canaries::Canaries>,
    /// The model version of each servable, from its publication until the engine has dropped it.
    ids: BTreeMap<ServableId, ModelKey>,
    /// The models of each digest that has a machine.
    sharing: BTreeMap<Digest, BTreeSet<ModelName>>,
    index: index::Index,
    /// Models whose machines have changed since they were last reconciled.
    dirty: BTreeSet<ModelName>,
    /// Models whose machines have changed since the last tick.
    touched: BTreeSet<ModelName>,
    ticked_at: Moment,
    /// The highest attempt number of any forgotten machine. A new machine starts after it, so it
    /// never takes an old completion for its own.
    forgotten: Attempt,
    /// Names of models whose views may have changed.
    changed: BTreeSet<ModelName>,
    /// The suspected versions of each engine.
    watches: BTreeMap<EngineId, watch::Watch>,
    /// The time since 1970 at which the clock of all moments began.
    epoch: Duration,
    crashes_changed: bool,
    counts: Counts,
    /// Kept in debug builds.
    exchanged: Exchanged,
}

/// A tag of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagKey {
    /// The model's name.
    pub name: ModelName,
    /// The tag.
    pub tag: Tag,
}

/// Counts of events by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Completions of earlier attempts.
    pub stale: u64,
    /// Events that should not have been possible.
    pub unexpected: u64,
    /// Machines that were examined to bring them in line with each other.
    pub examined: u64,
}

/// An event for the machines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A request needs a model that is not available.
    Ask(ModelName, Selector),
    /// Requests used these selectors, last at those times. One event lists everything used since
    /// the previous one; with several events a model could count as idle before its use is
    /// reported.
    Used(Vec<(ModelName, Selector, Moment)>),
    /// Like `Ask`, for a model that the configuration lists: [`Policy::max_unproven`] does not
    /// refuse it.
    AskListed(ModelName, Selector),
    /// Load it now, whatever failed before, and however many others are unproven.
    Load(ModelName, Selector),
    /// Unload it.
    Unload {
        /// The model.
        name: ModelName,
        /// The version to unload.
        selector: Selector,
        /// Whether to delete its files, too.
        delete: bool,
    },
    /// The store deleted the files of this digest to make room.
    Evicted(Digest),
    /// An event for the machine of a version.
    Model(ModelKey, model::Event),
    /// An event for the machine of a tag.
    Tag(TagKey, tags::Event),
    /// An engine reports about a version.
    Engine(EngineId, FromEngine),
    /// The condition of an engine has changed.
    Condition(EngineId, Condition),
    /// An engine has restarted, which cut these calls off. Its condition and the versions that were
    /// lost follow.
    Restarted(EngineId, CutCalls),
    /// From now on, the configuration has this tag followed for ever.
    Follow(TagKey),
    /// The configuration no longer names the tag: it is now treated like a tag that only requests
    /// named.
    Unfollow(TagKey),
    /// The source of the model has exactly these tags, which are followed for ever. Its other tags
    /// stop answering as soon as one of these answers with the digest that the source names.
    Listed(ModelName, Listed),
    /// The source of the model does not list its tags any more: those that it listed are treated
    /// like tags that only requests named.
    Unlisted(ModelName),
    /// From now on, the configuration keeps this version up.
    Pin(ModelKey),
    /// The configuration no longer keeps this version up.
    Unpin(ModelKey),
    /// The times and limits have changed.
    Policy(Policy),
    /// The rules that say which tags name canaries have changed; `None`: canaries are off.
    Canaries(Option<CanaryTags>),
    /// The model's name refers to another image now: its tags are looked up again, and failed
    /// versions are tried again.
    ImageChanged {
        /// The model.
        name: ModelName,
        /// Whether versions of the old image stop answering now, and not only when a version of the
        /// new one is up.
        forget: bool,
    },
    /// The configuration names another engine for the model; `None`: any that accepts it.
    EngineChanged(ModelName, Option<EngineId>),
    /// With a selector, the one of requests that name neither tag nor digest: an engine has one
    /// version of the model at a time. `None`: a new version is loaded beside the old one.
    Rollover(ModelName, Option<Selector>),
}

/// An effect for the shell to carry out. The effects of one event are carried out in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// An effect of a version's machine, other than `Add` and `Remove`.
    Model(ModelKey, model::Effect),
    /// Ask the registry for the digest of a tag.
    Resolve(TagKey, Attempt),
    /// From now on, the tag is answered by that digest.
    Switched(TagKey, Digest),
    /// The engine could not load a version, or has unloaded it; for the event record.
    LoadFailed(ModelKey, Failure),
    /// No version explains the crashes of an engine: versions that were put in quarantine for them
    /// are loaded again; for the event record.
    CrashesUnexplained(EngineId),
    /// A message to an engine.
    Engine(EngineId, ToEngine),
}

/// The state left by an earlier process, as read from the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Legacy {
    /// The digest that answered for each tag.
    pub tags: BTreeMap<TagKey, Digest>,
    /// Canaries that were rejected, by tag.
    pub rejected: BTreeMap<TagKey, Digest>,
    /// For each tag with a promotion: the digest that the registry named, and the digest promoted
    /// in its place.
    pub promoted: BTreeMap<TagKey, (Digest, Digest)>,
    /// Versions that an engine had loaded or was loading; their files exist.
    pub loaded: BTreeMap<ModelKey, Loaded>,
}

/// A version in an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The engine.
    pub engine: EngineId,
    /// The version's servable in that engine.
    pub id: ServableId,
}

impl Machines {
    /// Creates machines without models and with these engines. `versions` may be shared with the
    /// engines.
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
            replaced: BTreeMap::new(),
            listed: BTreeMap::new(),
            canaries: None,
            ids: BTreeMap::new(),
            sharing: BTreeMap::new(),
            index: index::Index::default(),
            dirty: BTreeSet::new(),
            touched: BTreeSet::new(),
            // Zero, so that the first tick finds everything due.
            ticked_at: Moment::default(),
            forgotten: Attempt::default(),
            changed: BTreeSet::new(),
            watches: BTreeMap::new(),
            epoch: Duration::ZERO,
            crashes_changed: false,
            counts: Counts::default(),
            exchanged: Exchanged::default(),
        }
    }

    /// Takes over the state left by an earlier process. Must be called before any event.
    pub fn adopt(&mut self, legacy: Legacy, now: Moment) {
        for watch in self.watches.values_mut() {
            watch.retain(|key| legacy.loaded.contains_key(key));
        }
        for (key, serving) in legacy.tags {
            self.changed.insert(key.name.clone());
            self.touch(&key.name);
            // A tag whose version was not loaded was idle, and stays so: the version's files may be
            // about to be deleted.
            let version = ModelKey { name: key.name.clone(), digest: serving };
            let asked_at = legacy.loaded.contains_key(&version).then_some(now);
            let rejected = legacy.rejected.get(&key).copied();
            let promoted = legacy.promoted.get(&key).copied();
            let tag = TagMachine::adopted(serving, asked_at, now);
            self.tags.insert(key, tag.tried(rejected, promoted));
        }
        for (key, Loaded { engine, id }) in legacy.loaded {
            self.placed.insert(key.clone(), engine);
            self.ids.insert(id.clone(), key.clone());
            self.exchanged.adopt(id.clone());
            self.changed.insert(key.name.clone());
            self.insert(ModelMachine::adopted(key, id, now));
        }
    }

    /// Handles an event. `jitter` is a random number from 0 to 1.
    pub fn handle(&mut self, now: Moment, jitter: f64, event: Event) -> Vec<Effect> {
        if cfg!(debug_assertions)
            && let Event::Engine(_, message) = &event
        {
            self.exchanged.received(message);
        }
        let mut turn = Turn { now, jitter, events: VecDeque::from([event]), effects: Vec::new() };
        while let Some(event) = turn.events.pop_front() {
            self.step(&mut turn, event);
            if turn.events.is_empty() {
                self.reconcile(&mut turn);
            }
        }
        self.release(&mut turn);
        if cfg!(debug_assertions) {
            turn.effects.iter().for_each(|effect| self.exchanged.sent(effect));
            self.check(&turn);
        }
        turn.effects
    }

    /// Panics when an invariant does not hold.
    fn check(&self, turn: &Turn) {
        assert_eq!(invariants::check(self, turn.now), Ok(()));
        for effect in &turn.effects {
            assert_eq!(invariants::check_effect(self, turn.now, effect), Ok(()), "{effect:?}");
        }
    }

    /// Marks a model whose machines have changed.
    fn touch(&mut self, name: &ModelName) {
        self.dirty.insert(name.clone());
        self.touched.insert(name.clone());
    }

    fn insert(&mut self, model: ModelMachine) {
        let key = model.key().clone();
        self.touch(&key.name);
        self.sharing.entry(key.digest).or_default().insert(key.name.clone());
        self.models.insert(key, model);
    }

    fn step(&mut self, turn: &mut Turn, event: Event) {
        match event {
            Event::Tick => {
                self.try_again(turn);
                self.tick(turn);
            }
            Event::Ask(name, selector) => self.ask(turn, name, selector, Demand::Stranger),
            Event::AskListed(name, selector) => self.ask(turn, name, selector, Demand::Listed),
            Event::Load(name, selector) => self.ask(turn, name, selector, Demand::Operator),
            Event::Used(used) => self.used(turn, used),
            Event::Unload { name, selector, delete } => self.unload(turn, &name, &selector, delete),
            Event::Evicted(digest) => self.evicted(turn, digest),
            Event::Model(key, event) => self.model_event(turn, key, event),
            Event::Tag(key, event) => self.tag_event(turn, key, event),
            Event::Engine(_, message) => self.engine_event(turn, message),
            Event::Condition(engine, condition) => self.condition(engine, condition),
            Event::Restarted(engine, calls) => self.restarted(turn, &engine, calls),
            Event::Follow(key) => self.follow(turn, key),
            Event::Unfollow(key) => {
                turn.events.push_back(Event::Tag(key, tags::Event::Configure(false)));
            }
            Event::Listed(name, tags) => self.set_listed(turn, name, tags),
            Event::Unlisted(name) => self.unlist(turn, &name),
            Event::Pin(key) => self.pin(turn, key),
            Event::Unpin(key) => self.unpin(&key),
            Event::Policy(policy) => self.set_policy(turn, policy),
            Event::Canaries(tags) => self.set_canary_tags(tags),
            Event::ImageChanged { name, forget } => self.image_changed(turn, &name, forget),
            Event::EngineChanged(name, engine) => {
                self.engine_changed(turn, &name, engine.as_ref());
            }
            Event::Rollover(name, live) => self.set_rollover(name, live),
        }
    }
}

/// The handling of one event and of the events that follow from it.
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
