//! Pulls an image from a registry into a verified tree in the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use outrigger_budget::Account;
use outrigger_core::{Digest, Failure, Reason};
use outrigger_oci::{Client, Image, Layer, Progress, Receiver, Reference, Space};
use outrigger_store::{Error, Package, Reservation, Store, Tree};
use outrigger_trace::{Parent, SpanKind};
use tokio::time::{Instant, timeout_at};

use crate::{
    blocking::blocking,
    error::store_failure,
    metrics,
    places::{Pace, PullPlace},
};

/// The number of attempts when layers vanish or become corrupt between download and unpacking.
const ATTEMPTS: usize = 3;

/// The memory in which an image is unpacked: a window of zstd, the names of a layer, and buffers.
const UNPACK: u64 = 24 << 20;

/// The source and the destination of pulls.
pub struct Pull<'a> {
    /// The registries.
    pub client: &'a Client,
    /// The store for the trees.
    pub store: &'a Store,
    /// Selects the trees that must stay when the store needs space.
    pub in_use: Arc<dyn Fn(&Digest) -> bool + Send + Sync>,
    /// The number of layers of an image fetched at the same time.
    pub concurrency: usize,
    /// The memory in which images are unpacked, if it is limited.
    pub memory: Option<&'a Account>,
    /// Counts the bytes of layers as they arrive.
    pub progress: &'a Progress,
    /// The place and the time that the download of layers has; `None`: it is alone, without limit.
    pub turn: Option<Turn<'a>>,
}

/// A place and a time limit for a pull's transfers.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    place: &'a PullPlace,
    pace: Pace,
    /// The time at which it ends.
    at: Instant,
    /// Its length.
    limit: Duration,
}

impl<'a> Turn<'a> {
    /// A time limit that begins now.
    pub(crate) fn new(place: &'a PullPlace, pace: Pace, limit: Duration) -> Self {
        Self { place, pace, at: Instant::now() + limit, limit }
    }

    /// Runs a transfer from `registry` until the time limit, and again from its beginning after each
    /// time that it has given its place to another pull.
    ///
    /// # Errors
    /// `REGISTRY_UNAVAILABLE` at the time limit, or the failure of the transfer.
    pub(crate) async fn run<T, F: Future<Output = Result<T, Failure>>>(
        self,
        registry: &Reference,
        progress: &Progress,
        transfer: impl FnMut() -> F,
    ) -> Result<T, Failure> {
        let transfer = self.place.hold(self.pace, || progress.bytes(), transfer);
        let late = |_| {
            let (limit, repository) = (self.limit, registry.repository());
            let message = format!("the pull of {repository} took over {limit:?}; it is resumed");
            Failure::new(Reason::RegistryUnavailable, message)
        };
        timeout_at(self.at, transfer).await.map_err(late)?
    }
}

impl Pull<'_> {
    /// Downloads the layers of `image` that the store lacks, and unpacks the image.
    ///
    /// # Errors
    /// Errors of the registry, the image or the store, with the reasons of
    /// [`outrigger_oci::Error::failure`] and [`outrigger_store::Error::reason`].
    pub async fn tree(&self, image: &Image) -> Result<Tree, Failure> {
        self.traced(image, &Parent::default()).await
    }

    /// Like [`Self::tree`], traced as children of `span`.
    pub(crate) async fn traced(&self, image: &Image, span: &Parent) -> Result<Tree, Failure> {
        let mut attempt = 1;
        loop {
            let reservation = self.download(image, span).await?;
            match self.unpack(image, span).await {
                Err(error) if layers_lost(&error) && attempt < ATTEMPTS => attempt += 1,
                unpacked => return unpacked.map_err(|error| store_failure(&error)),
            }
            drop(reservation);
        }
    }

    /// Downloads the missing layers. They are safe from eviction until the reservation is dropped.
    async fn download(&self, image: &Image, span: &Parent) -> Result<Arc<Reservation>, Failure> {
        let (store, in_use) = (self.store.clone(), Arc::clone(&self.in_use));
        let layers = image.layers.clone();
        let reserved = blocking(move || reserve(&store, &layers, &*in_use)).await;
        let (reservation, missing) = reserved.map_err(|error| store_failure(&error))?;
        let reservation = Arc::new(reservation);
        let receiver = &self.receiver(&reservation);
        let fetch = |(layer, dest): (Layer, PathBuf)| async move {
            let mut part = span.child("layer", SpanKind::Client);
            part.set("outrigger.layer.digest", layer.digest.to_string());
            part.set("outrigger.layer.size", layer.size as i64);
            let reference = &image.reference;
            let fetched = self.client.fetch_blob_with(reference, &layer, &dest, receiver);
            let fetched = fetched.await.map_err(|error| error.failure());
            part.end(&fetched);
            fetched
        };
        let transfer = || {
            let fetches = stream::iter(missing.clone()).map(Ok);
            fetches.try_for_each_concurrent(self.concurrency.max(1), fetch)
        };
        match self.turn {
            Some(turn) => turn.run(&image.reference, self.progress, transfer).await?,
            None => transfer().await?,
        }
        let store = self.store.clone();
        let committed = blocking(move || {
            missing.iter().try_for_each(|(layer, _)| store.commit_blob(&layer.digest))
        });
        committed.await.map_err(|error| store_failure(&error))?;
        Ok(reservation)
    }

    /// Reserves space in the store as bytes arrive.
    fn receiver(&self, reservation: &Arc<Reservation>) -> Receiver {
        let (reservation, in_use) = (Arc::clone(reservation), Arc::clone(&self.in_use));
        let space = Space::new(move |layer, length| {
            let grown = reservation.grow(&layer.digest, length, layer.size, &*in_use);
            grown.map_err(|error| store_failure(&error))
        });
        Receiver { progress: self.progress.clone(), space: Some(space) }
    }

    async fn unpack(&self, image: &Image, span: &Parent) -> Result<Tree, Error> {
        let _memory = match self.memory {
            Some(account) => account.wait(image.digest, UNPACK.min(account.limit())).await.ok(),
            None => None,
        };
        let mut part = span.child("unpack", SpanKind::Internal);
        let package = Package {
            digest: image.digest,
            platform_digest: image.platform_digest,
            labels: labels(image),
            layers: image.layers.iter().map(|layer| (layer.digest, layer.kind)).collect(),
        };
        let (store, in_use) = (self.store.clone(), Arc::clone(&self.in_use));
        let unpacked = blocking(move || store.unpack(&package, &*in_use)).await;
        if let Err(error) = &unpacked {
            part.failed(&store_failure(error));
        }
        unpacked
    }
}

/// Protects the layers, and returns the missing ones with their destinations.
fn reserve(
    store: &Store,
    layers: &[Layer],
    in_use: &dyn Fn(&Digest) -> bool,
) -> Result<(Reservation, Vec<(Layer, PathBuf)>), Error> {
    let sizes: Vec<_> = layers.iter().map(|layer| (layer.digest, layer.size)).collect();
    let reservation = store.reserve(&sizes, in_use)?;
    let seen = &mut BTreeSet::new();
    let layers = layers.iter().copied().filter(|layer| seen.insert(layer.digest));
    let (there, missing): (Vec<_>, Vec<_>) =
        layers.partition(|layer| store.has_blob(&layer.digest));
    metrics::layers_wanted(there.len(), missing.len());
    let place = |layer: Layer| (layer, store.partial(&layer.digest));
    Ok((reservation, missing.into_iter().map(place).collect()))
}

fn layers_lost(error: &Error) -> bool {
    matches!(error, Error::BlobMissing(_) | Error::BlobCorrupt { .. })
}

/// The labels; an annotation counts if there is no label of that name.
fn labels(image: &Image) -> BTreeMap<String, String> {
    let mut labels = image.annotations.clone();
    labels.extend(image.labels.clone());
    labels
}
