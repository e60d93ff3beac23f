//! From a reference to a verified tree in the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use outrigger_core::{Digest, Failure, ModelKey, ModelName, Reason, Tag};
use outrigger_oci::{Image, Layer, Reference};
use outrigger_store::{Package, Reservation};
use outrigger_trace::{Parent, SpanKind};

use super::{Done, Kept, Origin};
use crate::{
    metrics, signatures,
    world::{World, blocking, store_failure},
};

/// Layers that vanish or rot between download and unpacking are pulled again
/// so many times.
const ATTEMPTS: usize = 3;

/// Gets the files of `key` into the store, if it is signed as it has to be. The
/// registry is not asked for what is there already. `span` is what is told of it.
pub(crate) async fn pull(world: Arc<World>, key: ModelKey, origin: Origin, span: Parent) -> Done {
    let digest = key.digest;
    let verified = match signatures::verify(&world, &key).await {
        Ok(verified) => verified,
        Err(failure) => {
            let result = Err(failure);
            metrics::pulled(&result);
            return Done::Pulled { origin, result, trees: None };
        }
    };
    let there = blocking(&world, move |world| world.store.tree(&digest).as_ref().map(Kept::of));
    let there = there.await;
    metrics::tree_wanted(there.is_some());
    if let Some(kept) = there {
        signatures::keep(&world, digest, verified).await;
        return Done::Pulled { origin, result: Ok(kept), trees: None };
    }
    let result = fetch(&world, &key, &span).await;
    if result.is_ok() {
        signatures::keep(&world, digest, verified).await;
    }
    metrics::pulled(&result);
    let trees = blocking(&world, |world| {
        let trees = world.store.trees().ok()?;
        Some(trees.iter().map(|tree| *tree.digest()).collect::<BTreeSet<_>>())
    });
    Done::Pulled { origin, result, trees: trees.await }
}

async fn fetch(world: &Arc<World>, key: &ModelKey, span: &Parent) -> Result<Kept, Failure> {
    let reference = world.names.version(key)?;
    let _permit = world.pulls.acquire().await.expect("never closed");
    let resolve = span.child("resolve", SpanKind::Client);
    let image = world.client.image(&reference).await.map_err(|error| error.failure());
    resolve.end(&image);
    let image = image?;
    let mut attempt = 1;
    loop {
        let reservation = download(world, &reference, &image, span).await?;
        match unpack(world, &image, span).await {
            Err(again) if again.layers_lost && attempt < ATTEMPTS => attempt += 1,
            Err(failed) => return Err(failed.failure),
            Ok(kept) => return Ok(kept),
        }
        drop(reservation);
    }
}

/// Gets the layers that are missing. They are safe from eviction until the
/// reservation is dropped.
async fn download(
    world: &Arc<World>,
    reference: &Reference,
    image: &Image,
    span: &Parent,
) -> Result<Reservation, Failure> {
    let sizes: Vec<_> = image.layers.iter().map(|layer| (layer.digest, layer.size)).collect();
    let layers = image.layers.clone();
    let (reservation, missing) = blocking(world, move |world| {
        let reservation = world.store.reserve(&sizes, &|digest| world.uses(digest))?;
        let seen = &mut BTreeSet::new();
        let layers = layers.into_iter().filter(|layer| seen.insert(layer.digest));
        let (there, missing): (Vec<_>, Vec<_>) =
            layers.partition(|layer| world.store.has_blob(&layer.digest));
        metrics::layers_wanted(there.len(), missing.len());
        let place = |layer: Layer| (layer, world.store.partial(&layer.digest));
        Ok((reservation, missing.into_iter().map(place).collect::<Vec<_>>()))
    })
    .await
    .map_err(|error| store_failure(&error))?;
    let fetch = |(layer, dest): (Layer, PathBuf)| async move {
        let mut part = span.child("layer", SpanKind::Client);
        part.set("outrigger.layer.digest", layer.digest.to_string());
        part.set("outrigger.layer.size", layer.size as i64);
        let fetched = world.client.fetch_blob(reference, &layer, &dest).await;
        let fetched = fetched.map_err(|error| error.failure());
        part.end(&fetched);
        fetched
    };
    let fetches = stream::iter(missing.clone()).map(Ok);
    let concurrency = world.config.layer_concurrency.max(1);
    fetches.try_for_each_concurrent(concurrency, fetch).await?;
    blocking(world, move |world| {
        missing.iter().try_for_each(|(layer, _)| world.store.commit_blob(&layer.digest))
    })
    .await
    .map_err(|error| store_failure(&error))?;
    Ok(reservation)
}

struct Unpacked {
    failure: Failure,
    layers_lost: bool,
}

async fn unpack(world: &Arc<World>, image: &Image, span: &Parent) -> Result<Kept, Unpacked> {
    let mut part = span.child("unpack", SpanKind::Internal);
    let package = Package {
        digest: image.digest,
        platform_digest: image.platform_digest,
        labels: labels(image),
        layers: image.layers.iter().map(|layer| (layer.digest, layer.kind)).collect(),
    };
    let unpacked = blocking(world, move |world| {
        let unpacked = world.store.unpack(&package, &|digest| world.uses(digest));
        unpacked.map(|tree| Kept::of(&tree)).map_err(|error| Unpacked {
            failure: store_failure(&error),
            layers_lost: matches!(
                error,
                outrigger_store::Error::BlobMissing(_) | outrigger_store::Error::BlobCorrupt { .. }
            ),
        })
    })
    .await;
    if let Err(failed) = &unpacked {
        part.failed(&failed.failure);
    }
    unpacked
}

/// The labels, with the annotations beneath them.
fn labels(image: &Image) -> BTreeMap<String, String> {
    let mut labels = image.annotations.clone();
    labels.extend(image.labels.clone());
    labels
}

/// Which digest a tag is now.
pub(crate) async fn resolve(
    world: &Arc<World>,
    model: &ModelName,
    tag: &Tag,
) -> Result<Digest, Failure> {
    let reference = world.names.image(model)?.with_tag(tag.clone());
    let resolved = world.client.resolve(&reference).await;
    metrics::resolved(&resolved, tag);
    resolved.map_err(|error| {
        let failure = error.failure();
        if failure.reason != Reason::ModelNotFound {
            return failure;
        }
        // Which registry holds it is no business of whoever asks.
        Failure::new(Reason::ModelNotFound, format!("model {model}: there is no such image"))
    })
}
