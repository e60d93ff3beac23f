//! Facts about the machines that are kept up to date with every change, so that the work for one
//! event does not depend on the number of models.

use std::collections::{BTreeMap, BTreeSet};

use super::{Effect, Legacy, Loaded, Machines, Turn};
use crate::{
    Context, Digest, EngineId, ModelKey, ModelName, Moment, Selector, ServableName,
    engine::ToEngine,
    model::{ModelMachine, Slot, Trouble},
    tags::TagMachine,
};

/// The facts about all models.
#[derive(Debug, Default)]
pub(super) struct Index {
    facts: BTreeMap<ModelName, Facts>,
    wakes: BTreeSet<(Moment, ModelName)>,
    /// Selectors that never worked and have no answer yet, the longest unused first.
    unproven: BTreeSet<(Moment, ModelName, Selector)>,
    /// Selectors that do not exist or cannot be served, the longest unused first.
    absent: BTreeSet<(Moment, ModelName, Selector)>,
    /// For each digest, the number of models that need its files.
    files: BTreeMap<Digest, usize>,
    /// Digests whose files have become needed, or unneeded.
    files_changed: BTreeSet<Digest>,
    /// Models whose part of the journal has changed.
    durable: BTreeSet<ModelName>,
}

/// The facts about the machines of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Facts {
    /// The number of machines; facts about a model without any are not kept.
    machines: usize,
    wakes_at: Option<Moment>,
    /// Requested tags and digests that never worked and have no answer yet, with the time of their
    /// last use.
    unproven: BTreeSet<(Moment, Selector)>,
    /// Requested tags and digests that do not exist or cannot be served, with the time of their
    /// answer or last use.
    absent: BTreeSet<(Moment, Selector)>,
    /// The engines that should expect versions of the model.
    expected: BTreeSet<EngineId>,
    /// Digests whose files must stay.
    files: BTreeSet<Digest>,
    legacy: Legacy,
}

/// A tag or digest that never worked.
struct Unproven {
    selector: Selector,
    is_absent: bool,
    /// The time of its last use, or of the answer that it does not exist or cannot be served.
    at: Moment,
}

impl Unproven {
    fn new(selector: Selector, used: Option<Moment>, answered_at: Option<Moment>) -> Self {
        let at = used.max(answered_at).unwrap_or_default();
        Self { selector, is_absent: answered_at.is_some(), at }
    }
}

impl Index {
    /// Replaces the facts about `name`. Returns the earlier ones.
    fn set(&mut self, name: &ModelName, facts: Facts) -> Facts {
        let before = self.facts.remove(name).unwrap_or_default();
        before.wakes_at.map(|at| self.wakes.remove(&(at, name.clone())));
        self.wakes.extend(facts.wakes_at.map(|at| (at, name.clone())));
        let of_name = |(at, selector): &(Moment, Selector)| (*at, name.clone(), selector.clone());
        before.unproven.iter().for_each(|it| _ = self.unproven.remove(&of_name(it)));
        before.absent.iter().for_each(|it| _ = self.absent.remove(&of_name(it)));
        self.unproven.extend(facts.unproven.iter().map(of_name));
        self.absent.extend(facts.absent.iter().map(of_name));
        for digest in before.files.difference(&facts.files) {
            let count = self.files.entry(*digest).or_default();
            *count -= 1;
            if *count == 0 {
                self.files.remove(digest);
                self.files_changed.insert(*digest);
            }
        }
        for digest in facts.files.difference(&before.files) {
            *self.files.entry(*digest).or_default() += 1;
            self.files_changed.insert(*digest);
        }
        if facts.legacy != before.legacy {
            self.durable.insert(name.clone());
        }
        if facts.machines > 0 {
            self.facts.insert(name.clone(), facts);
        }
        before
    }

    /// The longest unused selector without an answer, and its last use, if there are `most` of them.
    pub(super) fn longest_unproven(&self, most: usize) -> Option<&(Moment, ModelName, Selector)> {
        self.unproven.first().filter(|_| self.unproven.len() >= most)
    }

    /// The longest unused selector that does not exist or cannot be served, if there are `most` of
    /// them.
    pub(super) fn oldest_absent(&self, most: usize) -> Option<(ModelName, Selector)> {
        let oldest = self.absent.first().filter(|_| self.absent.len() >= most);
        oldest.map(|(_, name, selector)| (name.clone(), selector.clone()))
    }

    /// The models with a wake-up until `now`.
    pub(super) fn due(&self, now: Moment) -> BTreeSet<ModelName> {
        let due = self.wakes.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, name)| name.clone()).collect()
    }
}

impl Machines {
    /// Updates the facts about `name`, and reports to the engines whether to expect versions of it.
    pub(super) fn refresh(&mut self, turn: &mut Turn, name: &ModelName) {
        let facts = self.facts(&turn.context(&self.policy, &self.versions), name);
        let expected = facts.expected.clone();
        let before = self.index.set(name, facts).expected;
        if before == expected {
            return;
        }
        let servable = ServableName::of(name);
        let mut send = |engine: &EngineId, message| {
            turn.effects.push(Effect::Engine(engine.clone(), message));
        };
        let begun = expected.difference(&before);
        begun.for_each(|engine| send(engine, ToEngine::Expect(servable.clone())));
        let ended = before.difference(&expected);
        ended.for_each(|engine| send(engine, ToEngine::Unexpect(servable.clone())));
    }

    fn facts(&self, context: &Context<'_>, name: &ModelName) -> Facts {
        let (policy, after) = (&self.policy, self.ticked_at);
        let (tags, models) = (|| self.tags_of(name).map(|(_, tag)| tag), || self.models_of(name));
        let wakes = tags().filter_map(|tag| tag.wakes_at(policy, after));
        let wakes = wakes.chain(models().filter_map(|model| model.wakes_at(policy, after)));
        let busy = models().filter(|model| model.state().needs_files());
        let is_refused =
            |key: &ModelKey| self.models.get(key).is_some_and(ModelMachine::is_refused);
        let held = self.held_of(name, context.now).filter(|key| !is_refused(key));
        let promising = models().filter(|model| model.is_promising(context));
        let engine =
            |it: &ModelMachine| self.engine_of(it.key()).or_else(|| self.expected_engine(name));
        let unproven: Vec<_> = self.unproven(name).collect();
        let of_kind = |is_absent| {
            let kind = unproven.iter().filter(move |it| it.is_absent == is_absent);
            kind.map(|it| (it.at, it.selector.clone())).collect()
        };
        Facts {
            machines: tags().count() + models().count(),
            wakes_at: wakes.min(),
            unproven: of_kind(false),
            absent: of_kind(true),
            expected: promising.filter_map(engine).cloned().collect(),
            files: busy.map(|model| model.key().digest).chain(held.map(|key| key.digest)).collect(),
            legacy: self.legacy_of(name),
        }
    }

    /// The tags and digests of `name` that only requests named and that never worked. A version that
    /// such a tag names counts with the tag.
    fn unproven<'a>(&'a self, name: &'a ModelName) -> impl Iterator<Item = Unproven> + use<'a> {
        let tags = || self.tags_of(name).filter(|(_, tag)| tag.is_unproven());
        let named: BTreeSet<_> = tags().filter_map(|(_, tag)| tag.candidate()).collect();
        let tags = tags().map(|(key, tag)| {
            let answered_at = answered_at(tag.trouble()).or_else(|| self.settled_at(name, tag));
            Unproven::new(Selector::Tag(key.tag.clone()), tag.asked_at(), answered_at)
        });
        let models = self.models_of(name).filter(move |model| {
            is_new(model) && (model.asked_at().is_some() || !named.contains(&model.key().digest))
        });
        tags.chain(models.map(|model| {
            let selector = Selector::Digest(model.key().digest);
            Unproven::new(selector, model.asked_at(), answered_at(model.trouble()))
        }))
    }

    /// The time from which a tag is known to name a version that is refused, or that cannot be in the
    /// engine because another one of its model is.
    fn settled_at(&self, name: &ModelName, tag: &TagMachine) -> Option<Moment> {
        let key = ModelKey { name: name.clone(), digest: tag.candidate()? };
        match self.models.get(&key)? {
            model if model.slot() == Slot::Taken => tag.checked_at(),
            model if model.is_refused() => answered_at(model.trouble()),
            _ => None,
        }
    }

    pub(super) fn legacy_of(&self, name: &ModelName) -> Legacy {
        let mut legacy = Legacy::default();
        for (key, tag) in self.tags_of(name) {
            legacy.tags.extend(tag.last_known_good().map(|it| (key.clone(), it)));
            legacy.rejected.extend(tag.rejected().map(|it| (key.clone(), it)));
            legacy.promoted.extend(tag.promoted().map(|it| (key.clone(), it)));
        }
        for model in self.models_of(name).filter(|model| model.state().in_engine()) {
            let placed = self.placed.get(model.key()).zip(model.state().servable());
            let loaded = placed.map(|(engine, id)| {
                (model.key().clone(), Loaded { engine: engine.clone(), id: id.clone() })
            });
            legacy.loaded.extend(loaded);
        }
        legacy
    }

    /// True if no new tag or digest is accepted from a request: the number of those that never worked
    /// and have no answer yet is at its limit, and all of them were asked for lately.
    pub fn is_full(&self, now: Moment) -> bool {
        let longest = self.index.longest_unproven(self.policy.max_unproven);
        longest.is_some_and(|(used, _, _)| now.since(*used) < self.policy.forget_after)
    }

    /// The next time at which a tick changes something.
    pub fn wakes_at(&self) -> Option<Moment> {
        let models = self.index.wakes.first().map(|(at, _)| *at);
        models.into_iter().chain(self.watches_wake_at()).min()
    }

    /// The models for which a tick at `now` changes something.
    pub fn due(&self, now: Moment) -> BTreeSet<ModelName> {
        self.index.due(now)
    }

    /// The names of all models.
    pub fn names(&self) -> BTreeSet<ModelName> {
        self.index.facts.keys().cloned().collect()
    }

    /// True if the files of `digest` must stay. They must while they are in use, and while a preload or
    /// a followed tag keeps their version up. A refused version needs none of its files.
    pub fn needs_files(&self, digest: &Digest) -> bool {
        self.index.files.contains_key(digest)
    }

    /// Takes the digests whose files have become needed (true) or unneeded since the last call.
    pub fn take_files_changed(&mut self) -> Vec<(Digest, bool)> {
        let changed = std::mem::take(&mut self.index.files_changed);
        changed.into_iter().map(|digest| (digest, self.needs_files(&digest))).collect()
    }

    /// Takes the models whose part of the state for the next process has changed since the last
    /// call, with that part.
    pub fn take_durable(&mut self) -> Vec<(ModelName, Legacy)> {
        let names = std::mem::take(&mut self.index.durable).into_iter();
        let of = |name: &ModelName| {
            self.index.facts.get(name).map(|facts| facts.legacy.clone()).unwrap_or_default()
        };
        names.map(|name| (name.clone(), of(&name))).collect()
    }

    /// The first model whose facts differ from its machines, other than by a wake-up that is due.
    /// Examines a few models only, so that tests with many models stay fast.
    pub(crate) fn drift(&self, now: Moment) -> Option<ModelName> {
        let context = Context { now, jitter: 0.0, policy: &self.policy, versions: &self.versions };
        let due = self.due(now);
        let names = self.models.keys().map(|key| &key.name);
        let names = names.chain(self.tags.keys().map(|key| &key.name));
        let mut names = names.chain(self.index.facts.keys()).filter(|name| !due.contains(name));
        let none = Facts::default();
        let differs = |name: &&ModelName| {
            *self.index.facts.get(name).unwrap_or(&none) != self.facts(&context, name)
        };
        names.by_ref().take(16).find(differs).cloned()
    }
}

/// The time of the answer that a selector does not exist or cannot be served.
fn answered_at(trouble: Option<&Trouble>) -> Option<Moment> {
    trouble.filter(|trouble| trouble.retry_at.is_none()).map(|trouble| trouble.at)
}

fn is_new(model: &ModelMachine) -> bool {
    model.stage() == crate::Stage::New && !model.is_pinned()
}
