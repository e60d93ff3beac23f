//! Models of which the engine has one version at a time.

use outrigger_core::{Selector, ServableId, ServableName, machines::Event};
use outrigger_tfserving::machine::EngineState;

use super::{World, name, tag};

impl World {
    /// Replaces the versions of a model from now on, or has them overlap.
    pub(super) fn roll_over(&mut self, i: u8, is_replaced: bool) {
        let live = is_replaced.then(|| Selector::Tag(tag()));
        if !is_replaced {
            self.overlapping.insert(i % 3);
        }
        self.handle(Event::Rollover(name(i), live));
    }

    /// Checks that the engine itself has at most one version of each model that is replaced. After a
    /// change of the setting that holds once all versions but one have left.
    pub(super) fn check_replaced(&mut self) {
        for i in 0..3 {
            let ids: Vec<_> = self.in_engine(i).cloned().collect();
            let model = name(i);
            let versions = self.machines.models_of(&model);
            let inside = versions.filter(|it| it.state().servable().is_some()).count();
            if self.machines.is_replaced(&model) && ids.len() <= 1 && inside <= 1 {
                self.overlapping.remove(&i);
            }
            let may_overlap = self.overlapping.contains(&i);
            assert!(may_overlap || ids.len() <= 1, "{ids:?} are in the engine together");
        }
    }

    /// The versions of a model that the engine loads, has or unloads, without placeholders.
    fn in_engine(&self, i: u8) -> impl Iterator<Item = &ServableId> {
        let servable = ServableName::of(&name(i));
        let states = self.engine.states.iter().filter(move |(id, _)| id.name == servable);
        let there = states.filter(|(_, state)| **state != EngineState::End);
        there.map(|(id, _)| id).filter(|id| !self.placeholders.contains(*id))
    }
}
