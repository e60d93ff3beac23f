//! A canary is made live in the registry.

use std::sync::Arc;

use outrigger_core::{Digest, Failure, ModelKey, fleet::TagKey};

use crate::world::World;

/// What the registry's tag is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The canary.
    Promoted,
    /// Neither what was live in the trial nor the canary: it is left alone.
    Elsewhere(Digest),
}

/// Moves the tag `key` to `canary` if it still is `live`. Registries cannot
/// compare and set: a move between the look and the push is lost.
pub(crate) async fn promote(
    world: &Arc<World>,
    key: &TagKey,
    live: Digest,
    canary: Digest,
) -> Result<Told, Failure> {
    let tagged = world.names.image(&key.name)?.with_tag(key.tag.clone());
    let now = world.client.resolve(&tagged).await.map_err(|error| error.failure())?;
    if now == canary {
        return Ok(Told::Promoted);
    }
    if now != live {
        return Ok(Told::Elsewhere(now));
    }
    let version = world.names.version(&ModelKey { name: key.name.clone(), digest: canary })?;
    let moved = world.client.tag(&version, &key.tag).await;
    moved.map_err(|error| error.failure())?;
    Ok(Told::Promoted)
}
