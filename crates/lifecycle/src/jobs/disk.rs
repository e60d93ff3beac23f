//! Work on the store's directories.

use std::{collections::BTreeSet, sync::Arc, time::SystemTime};

use outrigger_core::{Digest, Failure, ModelKey, ServableId, Version, fleet::Legacy, model::Fault};
use outrigger_store::Error;

use crate::world::{World, blocking, store_failure};

/// Puts the files of `key` where the engine finds them as `id`, once the journal
/// tells of it.
pub(crate) async fn publish(
    world: &Arc<World>,
    key: &ModelKey,
    id: ServableId,
    journal: (u64, Arc<Legacy>),
) -> Result<(), Fault> {
    let digest = key.digest;
    blocking(world, move |world| {
        world.write_journal(journal.0, &journal.1);
        let tree = world.store.tree(&digest).ok_or(Fault::FilesMissing)?;
        let _alone = world.changing_serving();
        world.store.publish(&id, &tree).map_err(|error| match error {
            Error::TreeMissing(_) => Fault::FilesMissing,
            error => Fault::Failed(store_failure(&error)),
        })
    })
    .await
}

/// Puts a placeholder where the engine finds it.
pub(crate) async fn publish_placeholder(world: &Arc<World>, id: ServableId) -> Result<(), Failure> {
    blocking(world, move |world| {
        let _alone = world.changing_serving();
        let published = world.store.publish_placeholder(&id, &outrigger_backend::placeholder());
        published.map_err(|error| store_failure(&error))
    })
    .await
}

/// Hides `id` from the engine, which does not have it in its configuration.
pub(crate) async fn unpublish(world: &Arc<World>, id: ServableId) {
    blocking(world, move |world| {
        // What stays behind is removed at the next start.
        if let Err(error) = hide(world, &id) {
            tracing::warn!(servable = %id, error = %error, "cannot hide a version from the engine");
        }
    })
    .await;
}

/// Hides `id`, and the name once nothing is published under it: then it is in no
/// configuration either.
fn hide(world: &World, id: &ServableId) -> Result<(), Error> {
    let _alone = world.changing_serving();
    world.store.unpublish(id)?;
    match world.store.published()?.iter().any(|published| published.id.name == id.name) {
        true => Ok(()),
        false => world.store.remove_servable(&id.name),
    }
}

/// Deletes the files of `digest`, which no servable uses any more.
pub(crate) async fn delete(world: &Arc<World>, digest: Digest) {
    blocking(world, move |world| {
        if let Err(error) = remove(world, &digest) {
            tracing::warn!(model.digest = %digest, error = %error, "cannot delete a model's files");
        }
    })
    .await;
}

fn remove(world: &World, digest: &Digest) -> Result<(), Error> {
    // Hiding it may still be going on.
    for published in world.store.published()? {
        if published.tree.as_ref() == Some(digest) {
            hide(world, &published.id)?;
        }
    }
    world.store.remove_tree(digest)
}

/// Removes what earlier processes have left for the engine: versions up to
/// `last` that are not in `keep`. The engine must have taken a configuration
/// without them.
pub(crate) async fn clean(world: &Arc<World>, last: Version, keep: BTreeSet<ServableId>) {
    blocking(world, move |world| {
        let published = world.store.published().unwrap_or_default();
        let orphan = |id: &ServableId| id.version <= last && !keep.contains(id);
        for id in published.into_iter().map(|published| published.id).filter(orphan) {
            tracing::info!(servable = %id, "removing what an earlier process left for the engine");
            if let Err(error) = hide(world, &id) {
                tracing::warn!(servable = %id, error = %error, "cannot remove it");
            }
        }
    })
    .await;
}

/// Deletes trees that no model is known of and that were not used for `retain`;
/// notes of those in use that they are.
pub(crate) async fn sweep(world: &Arc<World>, known: BTreeSet<Digest>) {
    blocking(world, move |world| {
        let Ok(trees) = world.store.trees() else { return };
        let now = SystemTime::now();
        for tree in trees {
            let unused = now.duration_since(tree.last_used()).unwrap_or_default();
            let digest = *tree.digest();
            if world.uses(&digest) {
                // A later process that finds it unused counts from here.
                world.store.touch(&digest);
                continue;
            }
            if known.contains(&digest) || unused < world.config.retain {
                continue;
            }
            tracing::info!(model.digest = %digest, "deleting files that nobody used for long");
            if let Err(error) = world.store.remove_tree(&digest) {
                tracing::warn!(model.digest = %digest, error = %error, "cannot delete them");
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{churn, service};

    #[tokio::test]
    async fn the_directory_of_a_name_goes_with_its_last_version() {
        let (_handle, service, dir) = service(crate::Config::default());
        let world = service.world();
        let name = outrigger_core::ServableName::of(&churn());
        let id = |version| ServableId { name: name.clone(), version: Version(version) };
        for version in [1, 2] {
            publish_placeholder(world, id(version)).await.expect("published");
        }
        let path = dir.path().join("serving").join(name.as_str());
        unpublish(world, id(1)).await;
        assert!(path.join("2").is_dir(), "the engine may have it in its configuration");
        unpublish(world, id(2)).await;
        assert!(!path.exists());
        publish_placeholder(world, id(3)).await.expect("published again");
    }
}
