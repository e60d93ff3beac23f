//! A canary is made live in the registry.

use std::sync::Arc;

use outrigger_core::{Digest, Failure, ModelKey, Reason, fleet::TagKey};

use crate::world::World;

/// What the registry's tag is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The canary.
    Promoted,
    /// Neither what was live in the trial nor the canary: it is left alone.
    Elsewhere(Digest),
}

/// Moves the tag `key` to `canary` if it still is `live`.
///
/// # Errors
/// The registry's; also when it goes on naming `live` after the push.
pub(crate) async fn promote(
    world: &Arc<World>,
    key: &TagKey,
    live: Digest,
    canary: Digest,
) -> Result<Told, Failure> {
    let version = world.names.version(&ModelKey { name: key.name.clone(), digest: canary })?;
    let named = world.client.move_tag(&version, &key.tag, live).await;
    let named = named.map_err(|error| error.failure())?;
    if named == live {
        let message = "the tag was pushed, and still names what was live";
        return Err(Failure::new(Reason::RegistryUnavailable, message));
    }
    Ok(if named == canary { Told::Promoted } else { Told::Elsewhere(named) })
}
