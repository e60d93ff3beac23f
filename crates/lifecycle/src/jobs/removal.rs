//! A canary's tag that the registry does not find any more.

use std::sync::Arc;

use outrigger_core::{Digest, Failure, Reason, fleet::TagKey};

use super::pull;
use crate::world::World;

/// What the registry names by the live tag, once it is certain that it has `canary` no
/// more; `None`: nothing.
///
/// The live tag is looked up last: who promotes a canary by hand moves that first and
/// removes the canary's then, and is not to be taken for one who has given it up.
///
/// # Errors
/// Nothing is certain.
pub(crate) async fn look(
    world: &Arc<World>,
    canary: &TagKey,
    live: &TagKey,
) -> Result<Option<Digest>, Failure> {
    let reference = world.names.image(&canary.name)?.with_tag(canary.tag.clone());
    match world.client.is_missing(&reference).await {
        Ok(true) => {}
        Ok(false) => return Err(unsure(canary)),
        Err(error) => return Err(error.failure()),
    }
    match pull::resolve(world, &live.name, &live.tag).await {
        Ok(digest) => Ok(Some(digest)),
        Err(failure) if is_not_found(failure.reason) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Whether a look-up that failed so may mean that the tag is not there.
pub(crate) fn is_not_found(reason: Reason) -> bool {
    matches!(reason, Reason::TagNotFound | Reason::ModelNotFound)
}

fn unsure(canary: &TagKey) -> Failure {
    let message = format!("whether there is a tag {:?} is not certain", canary.tag.as_str());
    Failure::new(Reason::RegistryUnavailable, message)
}
