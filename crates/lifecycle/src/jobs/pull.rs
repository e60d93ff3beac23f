//! Pulling a version's files from the registry, and looking up tags.

use std::sync::Arc;

use outrigger_core::{Digest, Failure, ModelKey, ModelName, Reason, Tag, machines::TagKey};
use outrigger_oci::Progress;
use outrigger_trace::{Parent, SpanKind};

use super::{Done, Kept, Origin};
use crate::{
    metrics,
    pull::{Deadline, Pull},
    signatures,
    world::{World, blocking},
};

/// Pulls the files of `key` into the store, if it has the required signature. Files already in the
/// store are not requested from the registry. `is_own`: the model is in service, or the
/// configuration names it. `span` is the parent of the pull's trace spans.
pub(crate) async fn pull(
    world: Arc<World>,
    key: ModelKey,
    origin: Origin,
    is_own: bool,
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
    let result = fetch(&world, &key, is_own, &span).await;
    if result.is_ok() {
        signatures::keep(&world, digest, verified).await;
    }
    metrics::pulled(&result);
    Done::Pulled { origin, result, evicted: world.store.take_evicted() }
}

async fn fetch(
    world: &Arc<World>,
    key: &ModelKey,
    is_own: bool,
    span: &Parent,
) -> Result<Kept, Failure> {
    let reference = world.names.load().version(key)?;
    let _place = world.pulls.take(&reference, is_own).await;
    let deadline = Deadline::within(world.config.pull_timeout);
    let resolve = span.child("resolve", SpanKind::Client);
    let image = async { world.client.image(&reference).await.map_err(|error| error.failure()) };
    let image = deadline.limit(&reference, image).await;
    resolve.end(&image);
    let uses = Arc::clone(world);
    let pull = Pull {
        client: &world.client,
        store: &world.store,
        in_use: Arc::new(move |digest| uses.uses(digest)),
        concurrency: world.config.layer_concurrency,
        memory: Some(&world.config.budget.pulls),
        progress: &Progress::default(),
        deadline: Some(deadline),
    };
    let pulled = pull.traced(&image?, span).await.map(|tree| Kept::of(&tree));
    pulled.map_err(|failure| world.engines.listed(failure))
}

/// Looks a followed tag up, and logs if that fails.
pub(crate) async fn look_up(world: &World, key: &TagKey) -> Result<Digest, Failure> {
    let result = resolve(world, &key.name, &key.tag).await;
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

/// Asks the registry for the digest of a tag.
pub(crate) async fn resolve(
    world: &World,
    model: &ModelName,
    tag: &Tag,
) -> Result<Digest, Failure> {
    let reference = world.names.load().image(model)?.with_tag(tag.clone());
    let resolved = world.client.resolve(&reference).await;
    metrics::resolved(&resolved, tag);
    resolved.map_err(|error| {
        let failure = error.failure();
        if failure.reason != Reason::ModelNotFound {
            return failure;
        }
        // The message does not name the registry, which callers need not know.
        Failure::new(Reason::ModelNotFound, format!("model {model}: there is no such image"))
    })
}
