//! Bringing a version's files from its source into the store, and looking up tags.

use std::sync::Arc;

use outrigger_core::{Digest, Failure, ModelKey, Reason, machines::TagKey};
use outrigger_trace::Parent;

use super::{Done, Kept, Origin};
use crate::{
    metrics,
    places::{Asker, Pace},
    pull::Turn,
    signatures,
    sources::Fetch,
    world::{World, blocking},
};

/// Pulls the files of `key` into the store, if it has the required signature. Files already in the
/// store are not requested from the source. `span` is the parent of the pull's trace spans.
pub(crate) async fn pull(
    world: Arc<World>,
    key: ModelKey,
    origin: Origin,
    asker: Asker,
    span: Parent,
) -> Done {
    let digest = key.digest;
    let verified = match signatures::verify(&world, &key).await {
        Ok(verified) => verified,
        Err(failure) => {
            let result = Err(failure);
            metrics::pulled(&result);
            return Done::Pulled { origin, result, evicted: Vec::new() };
        }
    };
    let there = blocking(&world, move |world| world.store.tree(&digest).as_ref().map(Kept::of));
    let there = there.await;
    metrics::tree_wanted(there.is_some());
    if let Some(kept) = there {
        signatures::keep(&world, digest, verified).await;
        return Done::Pulled { origin, result: Ok(kept), evicted: Vec::new() };
    }
    let result = fetch(&world, &key, asker, &span).await;
    if result.is_ok() {
        signatures::keep(&world, digest, verified).await;
    }
    metrics::pulled(&result);
    Done::Pulled { origin, result, evicted: world.store.take_evicted() }
}

async fn fetch(
    world: &Arc<World>,
    key: &ModelKey,
    asker: Asker,
    span: &Parent,
) -> Result<Kept, Failure> {
    let source = world.source(&key.name)?;
    let location = world.names.load().location(&key.name)?;
    let place = world.pulls.take(&location, asker).await;
    let pace = Pace { bytes: world.client.least(), turn: world.config.pull_turn };
    let turn = Turn::new(&place, pace, world.config.pull_timeout);
    let fetched = source.fetch(key.digest, Fetch { world, turn, span }).await;
    fetched.map(|tree| Kept::of(&tree)).map_err(|failure| world.engines.listed(failure))
}

/// Looks a followed tag up, and logs if that fails.
pub(crate) async fn look_up(world: &World, key: &TagKey) -> Result<Digest, Failure> {
    let result = world.resolve_tag(&key.name, &key.tag).await;
    // A missing canary tag is normal and not logged.
    let is_normal =
        |failure: &Failure| failure.reason == Reason::TagNotFound && key.tag.is_canary();
    if let Err(failure) = &result
        && !is_normal(failure)
    {
        tracing::warn!(
            model.name = %key.name, model.tag = %key.tag,
            reason = %failure.reason, error = %failure.message,
            "cannot look the tag up"
        );
    }
    result
}
