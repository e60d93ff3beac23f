//! Events of time, requests and the store, passed on to the machines.

use super::{Event, Machines, TagKey, Turn};
use crate::{
    Digest, ModelKey, ModelName, Moment, Selector, model,
    tags::{self, TagMachine},
};

/// The kind of a request for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// A request for a model that the configuration does not list.
    Stranger,
    /// A request for a model that the configuration lists.
    Listed,
    /// An operator wants it loaded now.
    Operator,
}

impl Machines {
    pub(super) fn tick(&mut self, turn: &mut Turn) {
        let before = std::mem::replace(&mut self.ticked_at, turn.now);
        let mut names = self.index.due(turn.now);
        names.extend(std::mem::take(&mut self.touched));
        for name in &names {
            self.forget(turn, name);
            self.tick_model(turn, name, before);
        }
        self.dirty.extend(names);
    }

    /// Passes the time on to the machines of `name` for which it changes something.
    fn tick_model(&self, turn: &mut Turn, name: &ModelName, before: Moment) {
        let due = |at: Option<Moment>| at.is_some_and(|at| at <= turn.now);
        let tags = self.tags_of(name).filter(|(_, tag)| due(tag.wakes_at(&self.policy, before)));
        turn.events.extend(tags.map(|(key, _)| Event::Tag(key.clone(), tags::Event::Tick)));
        let models = self.models_of(name);
        let models = models.filter(|model| due(model.wakes_at(&self.policy, before)));
        let keys = models.map(|model| model.key().clone());
        turn.events.extend(keys.map(|key| Event::Model(key, model::Event::Tick)));
    }

    pub(super) fn ask(
        &mut self,
        turn: &mut Turn,
        name: ModelName,
        selector: Selector,
        demand: Demand,
    ) {
        if !self.is_known(&name, &selector) {
            if demand == Demand::Stranger {
                if self.is_full(turn.now) {
                    return;
                }
                self.limit_unproven(turn);
            }
            self.limit_requested(turn, &name, &selector);
        }
        let again = demand == Demand::Operator;
        match selector {
            Selector::Digest(digest) => {
                let key = ModelKey { name, digest };
                let retry = again.then_some(model::Event::Retry);
                let events = [model::Event::Ask].into_iter().chain(retry);
                turn.events.extend(events.map(|event| Event::Model(key.clone(), event)));
            }
            Selector::Tag(tag) => {
                let key = TagKey { name, tag };
                self.changed.insert(key.name.clone());
                self.touch(&key.name);
                let machine = self.tags.entry(key.clone());
                let machine =
                    machine.or_insert_with(|| TagMachine::new(false, self.forgotten, turn.now));
                let wake = if again { model::Event::Retry } else { model::Event::Wake };
                let digests = machine.serving().into_iter().chain(machine.candidate());
                for digest in digests {
                    let key = ModelKey { name: key.name.clone(), digest };
                    turn.events.push_back(Event::Model(key, wake.clone()));
                }
                let event = if again { tags::Event::Retry } else { tags::Event::Ask };
                turn.events.push_back(Event::Tag(key, event));
            }
        }
    }

    pub(super) fn used(&mut self, turn: &mut Turn, used: Vec<(ModelName, Selector, Moment)>) {
        turn.events.extend(used.into_iter().map(|(name, selector, at)| match selector {
            Selector::Digest(digest) => {
                Event::Model(ModelKey { name, digest }, model::Event::Used(at))
            }
            Selector::Tag(tag) => Event::Tag(TagKey { name, tag }, tags::Event::Used(at)),
        }));
    }

    pub(super) fn unload(
        &mut self,
        turn: &mut Turn,
        name: &ModelName,
        selector: &Selector,
        delete: bool,
    ) {
        for key in self.meant(name, selector) {
            turn.events.push_back(Event::Model(key, model::Event::Unload { delete }));
        }
    }

    pub(super) fn evicted(&mut self, turn: &mut Turn, digest: Digest) {
        let names = self.sharing.get(&digest).into_iter().flatten().cloned();
        // A version in another state has had its files pulled again, or detects their loss itself.
        let keys = names.map(|name| ModelKey { name, digest }).filter(|key| {
            self.models.get(key).is_some_and(|it| *it.state() == model::State::Downloaded)
        });
        turn.events.extend(keys.map(|key| Event::Model(key, model::Event::Evicted)));
    }
}
