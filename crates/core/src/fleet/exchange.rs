//! What one machine wants of another.

use super::{Effect, Event, Fleet, TagKey, Turn};
use crate::{
    ModelKey,
    model::{self, ModelMachine},
    serving, tags,
};

impl Fleet {
    pub(super) fn model_event(&mut self, turn: &mut Turn, key: ModelKey, event: model::Event) {
        let demanded = matches!(event, model::Event::Ask | model::Event::Pin(true));
        if demanded && !self.models.contains_key(&key) {
            self.models
                .insert(key.clone(), ModelMachine::new(key.clone(), self.forgotten, turn.now));
        }
        let Some(machine) = self.models.get_mut(&key) else {
            self.counts.stale += 1;
            return;
        };
        let mut context = turn.context(&self.policy, &mut self.versions);
        // Time alone shows only where it changes the state.
        let before = (event == model::Event::Tick).then(|| machine.state().clone());
        let (effects, outcome) = machine.handle(&mut context, event);
        if before.as_ref() != Some(machine.state()) {
            self.changed.insert(key.name.clone());
        }
        self.counts.add(outcome);
        for effect in effects {
            self.model_effect(turn, &key, effect);
        }
    }

    pub(super) fn model_effect(&mut self, turn: &mut Turn, key: &ModelKey, effect: model::Effect) {
        use model::Effect as E;
        match &effect {
            E::Add(id) => turn.engine(serving::Event::Add(id.clone())),
            E::Remove(id) => turn.engine(serving::Event::Remove(id.clone())),
            E::Delete(attempt) if self.shares_files(key) => {
                let done = model::Event::Deleted(*attempt);
                turn.events.push_back(Event::Model(key.clone(), done));
            }
            _ => {
                match &effect {
                    E::Publish(_, id) => drop(self.ids.insert(id.clone(), key.clone())),
                    E::Unpublish(id) => drop(self.ids.remove(id)),
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
        let mut context = turn.context(&self.policy, &mut self.versions);
        let (effects, outcome) = machine.handle(&mut context, event);
        self.changed.insert(key.name.clone());
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
                    if self.models.get(&moved).is_some_and(held_back) {
                        turn.events.push_back(Event::Model(moved, model::Event::Retry));
                    }
                }
            }
        }
    }

    pub(super) fn engine_event(&mut self, turn: &mut Turn, event: serving::Event) {
        let mut context = turn.context(&self.policy, &mut self.versions);
        let (effects, outcome) = self.serving.handle(&mut context, event);
        self.counts.add(outcome);
        for effect in effects {
            self.engine_effect(turn, effect);
        }
    }

    pub(super) fn engine_effect(&mut self, turn: &mut Turn, effect: serving::Effect) {
        use serving::Effect as E;
        let (id, event) = match effect {
            E::Up(id) => (id.clone(), model::Event::Up(id)),
            E::Failed(id, failure) => (id.clone(), model::Event::LoadFailed(id, failure)),
            E::Lost(id) => (id.clone(), model::Event::Lost(id)),
            E::Gone(id) => (id.clone(), model::Event::Gone(id)),
            other => return turn.effects.push(Effect::Engine(other)),
        };
        match self.ids.get(&id) {
            Some(key) => {
                if let model::Event::LoadFailed(_, failure) = &event {
                    turn.effects.push(Effect::LoadFailed(key.clone(), failure.clone()));
                }
                turn.events.push_back(Event::Model(key.clone(), event));
            }
            None => self.counts.unexpected += 1,
        }
    }

    /// Whether another model has, or may be using, the same files.
    pub(super) fn shares_files(&self, key: &ModelKey) -> bool {
        let mut others = self.models.values().filter(|other| other.key() != key);
        others.any(|other| {
            other.key().digest == key.digest
                && !matches!(other.state(), model::State::New | model::State::Deleting { .. })
        })
    }
}
