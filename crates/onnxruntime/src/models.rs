//! The loaded models by name and version.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt as _, TryFutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio::task::spawn_blocking;

use crate::session::{Model, ModelError};

/// A model's name and version.
pub(crate) type Id = (String, String);

/// The models of the process.
#[derive(Debug, Default)]
pub(crate) struct Models(Mutex<BTreeMap<Id, Entry>>);

/// One model.
#[derive(Debug, Clone)]
struct Entry {
    directory: PathBuf,
    load: Load,
}

/// A load that is in progress or has ended. It goes on if nobody waits for it.
type Load = Shared<BoxFuture<'static, Result<Arc<Model>, ModelError>>>;

/// One entry of the list of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: Id,
    /// The directory of its files.
    pub(crate) directory: PathBuf,
    /// True if it is loaded, false while it is being loaded.
    pub(crate) is_ready: bool,
}

/// The failure to load a model, or to unload it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The model is at fault, or ONNX Runtime.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The name and version belong to other files.
    #[error("{} {} is loaded from {}", .0.0, .0.1, .1.display())]
    Taken(Id, PathBuf),
    /// There is no such model.
    #[error("{} {} is not loaded", .0.0, .0.1)]
    NotLoaded(Id),
    /// Its files are being read.
    #[error("{} {} is being loaded", .0.0, .0.1)]
    Loading(Id),
}

impl Models {
    /// Loads the model in `directory` as `id`, unless it is loaded. Calls for a model that is being
    /// loaded wait for the same load.
    ///
    /// # Errors
    /// It is refused or cannot be loaded.
    pub(crate) async fn load(&self, id: Id, directory: &Path) -> Result<(), Refused> {
        self.start(&id, directory)?.await?;
        Ok(())
    }

    /// The load of `id`, which is begun unless there is one that has not failed.
    fn start(&self, id: &Id, directory: &Path) -> Result<Load, Refused> {
        let mut models = self.lock();
        if let Some(entry) = models.get(id).filter(|entry| !entry.has_failed()) {
            return match entry.directory == directory {
                true => Ok(entry.load.clone()),
                false => Err(Refused::Taken(id.clone(), entry.directory.clone())),
            };
        }
        let directory = directory.to_owned();
        let source = directory.clone();
        let loaded = spawn_blocking(move || Model::load(&source).map(Arc::new));
        let loaded = loaded.unwrap_or_else(|_| Err(ModelError::panicked()));
        let entry = Entry { directory, load: loaded.boxed().shared() };
        let load = entry.load.clone();
        models.insert(id.clone(), entry);
        Ok(load)
    }

    /// Unloads a model. Runs in progress keep it in memory until they end.
    ///
    /// # Errors
    /// [`Refused::NotLoaded`], [`Refused::Loading`].
    pub(crate) fn unload(&self, id: &Id) -> Result<(), Refused> {
        let mut models = self.lock();
        let entry = models.get(id).ok_or_else(|| Refused::NotLoaded(id.clone()))?;
        if entry.result().is_none() {
            return Err(Refused::Loading(id.clone()));
        }
        // Memory may take long to free.
        let removed = models.remove(id);
        spawn_blocking(move || drop(removed));
        Ok(())
    }

    /// A loaded model.
    ///
    /// # Errors
    /// [`Refused::NotLoaded`], also while it is being loaded.
    pub(crate) fn get(&self, id: &Id) -> Result<Arc<Model>, Refused> {
        let found = self.lock().get(id).and_then(Entry::result);
        found.and_then(Result::ok).ok_or_else(|| Refused::NotLoaded(id.clone()))
    }

    /// The models that are loaded or being loaded.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let listed = |(id, entry): (&Id, &Entry)| {
            let is_ready = match entry.result() {
                Some(Ok(_)) => true,
                None => false,
                Some(Err(_)) => return None,
            };
            Some(Listed { id: id.clone(), directory: entry.directory.clone(), is_ready })
        };
        self.lock().iter().filter_map(listed).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Id, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// The result of the load; `None` while it is in progress.
    fn result(&self) -> Option<Result<Arc<Model>, ModelError>> {
        self.load.clone().now_or_never()
    }

    fn has_failed(&self) -> bool {
        matches!(self.result(), Some(Err(_)))
    }
}
