//! Changes of the configuration while the machines run.

use super::{Event, Machines, TagKey, Turn};
use crate::{
    EngineId, ModelKey, ModelName, Moment, Policy,
    model::{self, ModelMachine, State},
    tags::{self, TagMachine},
};

impl Machines {
    pub(super) fn follow(&mut self, turn: &mut Turn, key: TagKey) {
        self.touch(&key.name);
        let machine = self.tags.entry(key.clone());
        let machine = machine.or_insert_with(|| TagMachine::new(true, self.forgotten, turn.now));
        let digests = machine.serving().into_iter().chain(machine.candidate());
        let versions = digests.map(|digest| ModelKey { name: key.name.clone(), digest });
        // An operator who unloaded a version could not know that the configuration would want it.
        self.wake(turn, versions.collect());
        turn.events.push_back(Event::Tag(key, tags::Event::Configure(true)));
    }

    pub(super) fn pin(&mut self, turn: &mut Turn, key: ModelKey) {
        self.wake(turn, vec![key.clone()]);
        self.touch(&key.name);
        self.pinned.insert(key);
    }

    pub(super) fn unpin(&mut self, key: &ModelKey) {
        self.touch(&key.name);
        self.pinned.remove(key);
    }

    fn wake(&self, turn: &mut Turn, versions: Vec<ModelKey>) {
        let known = versions.into_iter().filter(|key| self.models.contains_key(key));
        turn.events.extend(known.map(|key| Event::Model(key, model::Event::Wake)));
    }

    pub(super) fn set_policy(&mut self, turn: &mut Turn, policy: Policy) {
        self.policy = policy;
        // Times before the last tick may matter now, so the next one finds everything due.
        self.ticked_at = Moment::default();
        self.touched.extend(self.names());
        self.dirty.extend(self.names());
        // A tag may count as followed again, whose version must not be deleted by the tick.
        self.reconcile(turn);
        turn.events.push_back(Event::Tick);
    }

    pub(super) fn image_changed(&mut self, turn: &mut Turn, name: &ModelName, forget: bool) {
        let changed = tags::Event::ImageChanged { forget };
        let tags = self.tags_of(name).map(|(key, _)| Event::Tag(key.clone(), changed.clone()));
        turn.events.extend(tags);
        if !forget {
            return self.retry_failed(turn, name);
        }
        for model in self.models_of(name) {
            let unload = model::Event::Unload { delete: false };
            turn.events.push_back(Event::Model(model.key().clone(), unload));
        }
    }

    pub(super) fn engine_changed(
        &mut self,
        turn: &mut Turn,
        name: &ModelName,
        engine: Option<&EngineId>,
    ) {
        let moves = |model: &&ModelMachine| {
            let is_placed = !matches!(model.state(), State::Preparing { .. });
            let at = self.engine_of(model.key()).filter(|_| is_placed);
            engine.is_some_and(|engine| at != Some(engine))
        };
        for model in self.models_of(name).filter(moves) {
            turn.events.push_back(Event::Model(model.key().clone(), model::Event::Relocate));
        }
        self.retry_failed(turn, name);
    }

    /// Tries failed versions of `name` again: the cause may be gone. A version that an operator
    /// unloaded stays unloaded.
    fn retry_failed(&self, turn: &mut Turn, name: &ModelName) {
        let failed = |model: &&ModelMachine| model.trouble().is_some() && !model.is_suspended();
        for model in self.models_of(name).filter(failed) {
            turn.events.push_back(Event::Model(model.key().clone(), model::Event::Retry));
        }
    }
}
