//! The directories in which the engine finds models.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use outrigger_core::{Digest, Failure, Reason, ServableId, ServableName, Version};
use outrigger_run::Failed;
use outrigger_store::{Error, Published, Serving};
use tokio::task::spawn_blocking;

use crate::{framework::FILE, placeholder};

/// The published versions of one engine. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Files {
    serving: Serving,
    /// Locked while directories change. Hiding the last version of a name removes the name's
    /// directory, which must not happen while another version is published.
    changing: Arc<Mutex<()>>,
}

impl Files {
    pub(super) fn new(serving: Serving) -> Self {
        Self { serving, changing: Arc::default() }
    }

    /// Lists all published versions. Blocks.
    pub(super) fn published(&self) -> Result<Vec<Published>, Failure> {
        self.serving.published().map_err(|error| failure(&error))
    }

    /// The directory of a name's versions, in the engine's file system.
    pub(super) fn base_path(&self, name: &ServableName) -> std::path::PathBuf {
        self.serving.base_path(name)
    }

    /// Publishes the model of the image `digest` as `id`.
    pub(super) async fn publish(&self, id: ServableId, digest: Digest) -> Result<(), Failed> {
        let published = self.blocking(move |files| {
            let tree = files.serving.store().tree(&digest).ok_or(Failed::FilesMissing)?;
            files.alone(|serving| serving.publish(&id, &tree)).map_err(|error| match error {
                Error::TreeMissing(_) => Failed::FilesMissing,
                error => Failed::Other(failure(&error)),
            })
        });
        published.await.unwrap_or_else(|defect| Err(Failed::Other(defect)))
    }

    /// Publishes a placeholder as `id`.
    pub(super) async fn publish_placeholder(&self, id: ServableId) -> Result<(), Failure> {
        let published = self.blocking(move |files| {
            let published = files.alone(|serving| serving.publish_file(&id, FILE, &placeholder()));
            published.map_err(|error| failure(&error))
        });
        published.await.unwrap_or_else(Err)
    }

    /// Hides `id` from the engine. The engine must not have it in its configuration.
    pub(super) async fn unpublish(&self, id: ServableId) {
        // A version that cannot be hidden is removed at the next start.
        let hidden = self.blocking(move |files| log(&id, files.hide(&id)));
        hidden.await.ok();
    }

    /// Hides every version published from the image `digest`.
    pub(super) async fn unpublish_image(&self, digest: Digest) {
        let hidden = self.blocking(move |files| {
            let published = files.serving.published().unwrap_or_default();
            for published in published.iter().filter(|it| it.tree == Some(digest)) {
                log(&published.id, files.hide(&published.id));
            }
        });
        hidden.await.ok();
    }

    /// Removes versions up to `last`, which earlier processes published, except those in
    /// `keep`. The engine must have taken a configuration without them.
    pub(super) async fn clean(&self, last: Version, keep: BTreeSet<ServableId>) {
        let cleaned = self.blocking(move |files| {
            let published = files.serving.published().unwrap_or_default();
            let orphan = |id: &ServableId| id.version <= last && !keep.contains(id);
            for id in published.into_iter().map(|published| published.id).filter(orphan) {
                tracing::info!(servable = %id, "removing a version that an earlier process published");
                log(&id, files.hide(&id));
            }
        });
        cleaned.await.ok();
    }

    /// Hides `id`, and also its name if nothing else is published under it: then the name is in no
    /// configuration either.
    fn hide(&self, id: &ServableId) -> Result<(), Error> {
        self.alone(|serving| {
            serving.unpublish(id)?;
            match serving.published()?.iter().any(|published| published.id.name == id.name) {
                true => Ok(()),
                false => serving.remove_servable(&id.name),
            }
        })
    }

    /// Runs `change` under the lock on the directories.
    fn alone<T>(&self, change: impl FnOnce(&Serving) -> T) -> T {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        change(&self.serving)
    }

    /// Runs `work` on a thread where it may block; the error is a panic in it.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let files = self.clone();
        let done = spawn_blocking(move || work(&files)).await;
        done.map_err(|_| Failure::new(Reason::Internal, "a task ended unexpectedly"))
    }
}

/// The latest placeholder of each name.
pub(super) fn placeholders(published: &[Published]) -> BTreeMap<ServableName, ServableId> {
    let placeholders = published.iter().filter(|published| published.tree.is_none());
    // The list is ordered by version, so the latest placeholder of a name overwrites the earlier
    // ones.
    placeholders.map(|it| (it.id.name.clone(), it.id.clone())).collect()
}

fn failure(error: &Error) -> Failure {
    Failure::because(error.reason(), error)
}

fn log(id: &ServableId, hidden: Result<(), Error>) {
    if let Err(error) = hidden {
        tracing::warn!(servable = %id, error = %error, "cannot unpublish a version");
    }
}

#[cfg(test)]
mod tests {
    use outrigger_core::{EngineId, ModelName};
    use outrigger_store::{Config, Store};

    use super::*;

    #[tokio::test]
    async fn the_directory_of_a_name_goes_with_its_last_version() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(Config::new(dir.path())).expect("a store");
        let serving = store.serving(&EngineId::default(), None).expect("a directory");
        let files = Files::new(serving);
        let name = ServableName::of(&"churn".parse::<ModelName>().expect("a valid name"));
        let id = |version| ServableId { name: name.clone(), version: Version(version) };
        for version in [1, 2] {
            files.publish_placeholder(id(version)).await.expect("published");
        }
        let path = dir.path().join("serving").join(name.as_str());
        files.unpublish(id(1)).await;
        assert!(path.join("2").is_dir(), "the engine may have it in its configuration");
        files.unpublish(id(2)).await;
        assert!(!path.exists());
        files.publish_placeholder(id(3)).await.expect("published again");
    }
}
