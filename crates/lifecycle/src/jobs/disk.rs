//! Jobs on the store's directories.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use outrigger_core::Digest;

use crate::world::{World, blocking};

/// Deletes the files of `digest`, which no servable uses any more.
pub(crate) async fn delete(world: &Arc<World>, digest: Digest) {
    // The unpublication after the last unload may still be running.
    for (_, engine) in world.engines.iter() {
        engine.unpublish_image(digest).await;
    }
    blocking(world, move |world| {
        if let Err(error) = world.store.remove_tree(&digest) {
            tracing::warn!(model.digest = %digest, error = %error, "cannot delete a model's files");
        }
    })
    .await;
}

/// Deletes trees that belong to no known model and were unused for `retain`. Records the current
/// time as the last use of trees that are in use.
pub(crate) async fn sweep(world: &Arc<World>, known: BTreeSet<Digest>, retain: Duration) {
    blocking(world, move |world| {
        let Ok(trees) = world.store.trees() else { return };
        let now = SystemTime::now();
        for tree in trees {
            let unused = now.duration_since(tree.last_used()).unwrap_or_default();
            let digest = *tree.digest();
            if world.uses(&digest) {
                // A later process measures the unused time from here.
                world.store.touch(&digest);
                continue;
            }
            if known.contains(&digest) || unused < retain {
                continue;
            }
            tracing::info!(model.digest = %digest, "deleting files that were not used for a long time");
            if let Err(error) = world.store.remove_tree(&digest) {
                tracing::warn!(model.digest = %digest, error = %error, "cannot delete them");
            }
        }
    })
    .await;
}
