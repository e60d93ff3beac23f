//! The loaded models by name and version.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::session::{Model, RunError};

/// A model's name and version.
pub(crate) type Id = (String, String);

/// The models of the process.
#[derive(Debug, Default)]
pub(crate) struct Models(Mutex<BTreeMap<Id, Arc<Model>>>);

impl Models {
    /// Loads the model in `directory` as `id`, unless it is loaded. Blocks.
    ///
    /// # Errors
    /// It is refused or cannot be loaded.
    pub(crate) fn load(&self, id: Id, directory: &Path) -> Result<(), RunError> {
        if self.get(&id).is_some() {
            return Ok(());
        }
        let model = Model::load(directory)?;
        self.lock().insert(id, Arc::new(model));
        Ok(())
    }

    /// Unloads a model once its runs have ended. Returns false if it is not loaded.
    pub(crate) fn unload(&self, id: &Id) -> bool {
        self.lock().remove(id).is_some()
    }

    /// A loaded model.
    pub(crate) fn get(&self, id: &Id) -> Option<Arc<Model>> {
        self.lock().get(id).cloned()
    }

    /// The names and versions of all models.
    pub(crate) fn ids(&self) -> Vec<Id> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Id, Arc<Model>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
