//! The versions that the engines have by the messages that were exchanged with them, for the checks
//! of debug builds.

use std::collections::BTreeMap;

use super::Effect;
use crate::{
    ServableId,
    engine::{FromEngine, ToEngine},
    model,
};

/// The versions in the engines' configurations, now or soon.
#[derive(Debug, Default)]
pub(crate) struct Exchanged(BTreeMap<ServableId, Place>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The engine was asked to load it, or had it before this process.
    Added,
    /// A restart of the engine lost it.
    Lost,
    /// The engine was asked to unload it, and has not confirmed that.
    Removed,
}

impl Exchanged {
    /// Records a version that an engine had before this process.
    pub(super) fn adopt(&mut self, id: ServableId) {
        self.0.insert(id, Place::Added);
    }

    /// Records a message of an engine.
    pub(super) fn received(&mut self, message: &FromEngine) {
        match message {
            FromEngine::Gone(id) => drop(self.0.remove(id)),
            FromEngine::Lost(id) => {
                let place = self.0.get_mut(id).filter(|place| **place == Place::Added);
                place.into_iter().for_each(|place| *place = Place::Lost);
            }
            FromEngine::Up(_) | FromEngine::Failed(..) => {}
        }
    }

    /// Records an effect, which may be a message to an engine.
    pub(super) fn sent(&mut self, effect: &Effect) {
        match effect {
            Effect::Engine(_, ToEngine::Add(id)) => {
                self.0.insert(id.clone(), Place::Added);
            }
            Effect::Engine(_, ToEngine::Remove(id)) => {
                self.0.insert(id.clone(), Place::Removed);
            }
            Effect::Model(_, model::Effect::Unpublish(id)) if !self.mentions(id) => {
                self.0.remove(id);
            }
            _ => {}
        }
    }

    /// Returns true if the engine is to have the version, also after a restart lost it.
    pub(crate) fn wants(&self, id: &ServableId) -> bool {
        self.0.get(id).is_some_and(|place| *place != Place::Removed)
    }

    /// Every version that an engine may have in its configuration.
    pub(crate) fn mentioned(&self) -> impl Iterator<Item = &ServableId> {
        self.0.keys().filter(|id| self.mentions(id))
    }

    fn mentions(&self, id: &ServableId) -> bool {
        self.0.get(id).is_some_and(|place| *place != Place::Lost)
    }
}
