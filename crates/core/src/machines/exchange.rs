//! Messages between the machines.

use super::{Effect, Event, Machines, TagKey, Turn};
use crate::{
    EngineId, ModelKey, Outcome, Reason,
    engine::FromEngine,
    model::{self, ModelMachine},
    tags,
};

impl Machines {
    pub(super) fn model_event(&mut self, turn: &mut Turn, key: ModelKey, event: model::Event) {
        let demanded = matches!(event, model::Event::Ask | model::Event::Pin(true));
        if demanded && !self.models.contains_key(&key) {
            self.insert(ModelMachine::new(key.clone(), self.forgotten, turn.now));
            if let Some(failure) = self.conviction(&key) {
                self.model_event(turn, key.clone(), model::Event::Quarantined(failure));
            }
        }
        if event == model::Event::Retry {
            self.pardon(&key);
        }
        let Some(machine) = self.models.get_mut(&key) else {
            self.counts.stale += 1;
            return;
        };
        let engine = match &event {
            model::Event::Prepared(_, Ok(engine)) => Some(engine.clone()),
            _ => None,
        };
        let is_unanswered = matches!(&event, model::Event::Checked(_, Err(failure))
            if failure.reason == Reason::EngineUnavailable);
        let mut context = turn.context(&self.policy, &self.versions);
        // A tick marks a model as changed only if it changes the state.
        let before = (event == model::Event::Tick).then(|| machine.state().clone());
        let (effects, outcome) = machine.handle(&mut context, event);
        if before.as_ref() != Some(machine.state()) {
            self.changed.insert(key.name.clone());
        }
        self.counts.add(outcome);
        if let Some(engine) = engine.filter(|_| outcome == Outcome::Handled) {
            self.placed.insert(key.clone(), engine);
        }
        if is_unanswered && outcome == Outcome::Handled {
            self.unanswered(&key);
        }
        self.touch(&key.name);
        for effect in effects {
            self.model_effect(turn, &key, effect);
        }
    }

    pub(super) fn model_effect(&mut self, turn: &mut Turn, key: &ModelKey, effect: model::Effect) {
        use model::Effect as E;
        match &effect {
            E::Add(id) => self.load(turn, key, id.clone()),
            E::Remove(id) => self.unload_from_engine(turn, key, id.clone()),
            E::Delete(attempt) if self.shares_files(key) => {
                let done = model::Event::Deleted(*attempt);
                turn.events.push_back(Event::Model(key.clone(), done));
            }
            _ => {
                match &effect {
                    E::Publish(_, id) => drop(self.ids.insert(id.clone(), key.clone())),
                    E::Unpublish(id) => drop(self.ids.remove(id)),
                    E::Route(..) => self.arrived(key),
                    _ => {}
                }
                turn.effects.push(Effect::Model(key.clone(), effect));
            }
        }
    }

    pub(super) fn tag_event(&mut self, turn: &mut Turn, key: TagKey, event: tags::Event) {
        let Some(machine) = self.tags.get_mut(&key) else {
            self.counts.stale += 1;
            return;
        };
        let mut context = turn.context(&self.policy, &self.versions);
        let is_known = machine.registry().is_some();
        let (effects, outcome) = machine.handle(&mut context, event);
        self.changed.insert(key.name.clone());
        self.touch(&key.name);
        self.counts.add(outcome);
        for effect in effects {
            match effect {
                tags::Effect::Resolve(attempt) => {
                    turn.effects.push(Effect::Resolve(key.clone(), attempt));
                }
                tags::Effect::Switched(digest) => {
                    turn.effects.push(Effect::Switched(key.clone(), digest));
                }
                tags::Effect::Moved(digest) => {
                    let moved = ModelKey { name: key.name.clone(), digest };
                    let held_back =
                        |model: &ModelMachine| model.trouble().is_some() || model.is_suspended();
                    // The first look-up after a start is no move.
                    let stays = !is_known && self.conviction(&moved).is_some();
                    if !stays && self.models.get(&moved).is_some_and(held_back) {
                        turn.events.push_back(Event::Model(moved, model::Event::Retry));
                    }
                }
            }
        }
    }

    pub(super) fn engine_event(&mut self, turn: &mut Turn, message: FromEngine) {
        let Some(key) = self.ids.get(message.id()) else {
            self.counts.add(Outcome::Stale);
            return;
        };
        let event = match message {
            FromEngine::Up(id) => model::Event::Up(id),
            FromEngine::Lost(id) => model::Event::Lost(id),
            FromEngine::Gone(id) => model::Event::Gone(id),
            FromEngine::Failed(id, failure) => {
                turn.effects.push(Effect::LoadFailed(key.clone(), failure.clone()));
                model::Event::LoadFailed(id, failure)
            }
        };
        turn.events.push_back(Event::Model(key.clone(), event));
    }

    /// The engine of a version, if the version has been prepared.
    pub fn engine_of(&self, key: &ModelKey) -> Option<&EngineId> {
        self.placed.get(key)
    }

    /// Whether another model has, or may be using, the same files.
    pub(super) fn shares_files(&self, key: &ModelKey) -> bool {
        let names = self.sharing.get(&key.digest).into_iter().flatten();
        let others = names.filter(|name| **name != key.name);
        let mut others = others.filter_map(|name| {
            self.models.get(&ModelKey { name: name.clone(), digest: key.digest })
        });
        others.any(|other| {
            !matches!(other.state(), model::State::New | model::State::Deleting { .. })
        })
    }
}
