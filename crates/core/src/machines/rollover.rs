//! Models of which an engine has one version at a time.
//!
//! Such a model has one slot. Its versions are ordered by preference: the version that the model's
//! live tag should have, the one that answers for it, then the one in the slot. The first of them
//! that is ready has the slot, and the others leave the engine. A version is ready if it is
//! prepared, or in the engine, and has not failed. So the old version stays until the new one needs
//! nothing but its place in the engine, and is loaded again if the new one fails there.

use std::collections::BTreeSet;

use super::{Event, Machines, Turn};
use crate::{
    Context, Digest, ModelName, Selector,
    model::{self, ModelMachine, Slot, State},
    tags::TagMachine,
};

impl Machines {
    /// With `live`, the selector of requests without tag and digest: from now on an engine has one
    /// version of the model at a time. `None`: versions overlap.
    pub(super) fn set_rollover(&mut self, name: ModelName, live: Option<Selector>) {
        self.touch(&name);
        match live {
            Some(live) => drop(self.replaced.insert(name, live)),
            None => drop(self.replaced.remove(&name)),
        }
    }

    /// True if an engine has one version of the model at a time.
    pub fn is_replaced(&self, name: &ModelName) -> bool {
        self.replaced.contains_key(name)
    }

    /// Gives every version of `name` its right to be in the engine.
    pub(super) fn reconcile_slots(&self, turn: &mut Turn, name: &ModelName) {
        let slots = self.replaced.get(name).map(|live| {
            let c = turn.context(&self.policy, &self.versions);
            Slots::of(&c, self.by_preference(&c, name, live), |version| self.is_proven(version))
        });
        for model in self.models_of(name) {
            let slot = slots.as_ref().map_or(Slot::Free, |slots| slots.slot(self, model));
            if model.slot() != slot {
                let event = model::Event::Slot(slot);
                turn.events.push_back(Event::Model(model.key().clone(), event));
            }
        }
    }

    /// The wanted versions of `name`, the preferred one first.
    fn by_preference<'a>(
        &'a self,
        c: &Context<'_>,
        name: &'a ModelName,
        live: &Selector,
    ) -> Vec<&'a ModelMachine> {
        let wanted = || self.models_of(name).filter(|model| model.is_wanted(c));
        let inside: Vec<_> = wanted().filter(|model| is_inside(model)).map(digest_of).collect();
        let mut digests = Vec::new();
        match live {
            Selector::Digest(digest) => digests.push(*digest),
            Selector::Tag(live) => {
                let tag = self.tags_of(name).find(|(key, _)| key.tag == *live);
                digests.extend(tag.into_iter().flat_map(|(_, tag)| self.of_tag(c, tag, &inside)));
            }
        }
        // Another tag moves the model along if it names the version in the slot.
        for (_, tag) in self.tags_of(name) {
            let of_tag = self.of_tag(c, tag, &inside);
            if of_tag.iter().any(|digest| inside.contains(digest)) {
                digests.extend(of_tag);
            }
        }
        digests.extend(inside);
        digests.extend(wanted().map(digest_of));
        let mut seen = BTreeSet::new();
        let first = digests.into_iter().filter(|digest| seen.insert(*digest));
        first.filter_map(|digest| wanted().find(|model| digest_of(model) == digest)).collect()
    }

    /// The versions of a followed tag, the preferred one first. If the one that answered before a
    /// restart is not in the engine, then until the registry has answered, another one that is may be
    /// the one that the tag should have.
    fn of_tag(&self, c: &Context<'_>, tag: &TagMachine, inside: &[Digest]) -> Vec<Digest> {
        if !tag.is_followed(&self.policy, c.now) {
            return Vec::new();
        }
        let has_left = tag.serving().is_none_or(|serving| !inside.contains(&serving));
        let is_unknown = has_left && tag.registry().is_none() && tag.trouble().is_none();
        let assumed = inside.iter().copied().filter(|_| is_unknown);
        tag.candidate().into_iter().chain(assumed).chain(tag.serving()).collect()
    }

    /// True if requests rely on the version: it has served them, or a tag is answered by it.
    fn is_proven(&self, model: &ModelMachine) -> bool {
        let mut tags = self.tags_of(&model.key().name);
        model.has_served() || tags.any(|(_, tag)| tag.serving() == Some(digest_of(model)))
    }

    /// The version of `name` that requests are routed to.
    pub(super) fn routed_of<'a>(&'a self, name: &'a ModelName) -> Option<&'a ModelMachine> {
        self.models_of(name).find(|model| model.routed().is_some())
    }
}

/// The slot of a model: the version that has it, and the version that gets it next.
struct Slots {
    holder: Option<Digest>,
    next: Option<Digest>,
    /// Another version is loaded again if the holder fails.
    is_replacing: bool,
}

impl Slots {
    /// Divides the versions, the preferred one first.
    fn of(
        c: &Context<'_>,
        versions: Vec<&ModelMachine>,
        is_proven: impl Fn(&ModelMachine) -> bool,
    ) -> Self {
        let may_try = |model: &&&ModelMachine| model.may_try(c.now);
        let is_ready = |model: &&ModelMachine| {
            may_try(&model) && (is_inside(model) || *model.state() == State::Prepared)
        };
        let at = versions.iter().position(is_ready);
        let (preferred, others) = versions.split_at(at.unwrap_or(versions.len()));
        // Its files are there: only they are missing for a version that is being pulled.
        let may_be_prepared = |model: &&&ModelMachine| {
            may_try(model) && !matches!(model.state(), State::New | State::Pulling { .. })
        };
        let holder = others.first();
        let mut fallbacks = others.iter().skip(1).filter(may_try);
        Self {
            holder: holder.map(|model| digest_of(model)),
            next: preferred.iter().find(may_be_prepared).map(|model| digest_of(model)),
            is_replacing: holder.is_some_and(|model| !is_proven(model))
                && fallbacks.next().is_some(),
        }
    }

    fn slot(&self, machines: &Machines, model: &ModelMachine) -> Slot {
        let digest = digest_of(model);
        if self.holder != Some(digest) {
            return if self.next == Some(digest) { Slot::Next } else { Slot::Taken };
        }
        let mut versions = machines.models_of(&model.key().name);
        let others_leave = versions.any(|other| other.key() != model.key() && is_inside(other));
        match self.is_replacing {
            _ if others_leave && !model.state().in_engine() => Slot::Next,
            true => Slot::Replacing,
            false => Slot::Free,
        }
    }
}

/// True if the version is in the engine, or being published for it.
fn is_inside(model: &ModelMachine) -> bool {
    model.state().servable().is_some()
}

fn digest_of(model: &ModelMachine) -> Digest {
    model.key().digest
}
