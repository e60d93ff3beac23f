//! Unpacks layers to a tree. Nothing in an image is trusted.

mod archive;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod name;
mod root;
mod seal;
mod source;
mod take;
mod writer;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::Instant,
};

use outrigger_core::{Digest, LayerKind};

use self::{
    archive::Archive,
    name::{is_ignored, shown},
    root::{Fault, Root},
    seal::{Links, Parts},
    source::{Budget, Source},
    writer::{Room, Writer},
};
use crate::{
    Error, InUse, LayerProblem, Reservation, Result, Store, Tree, blobs, disk, metrics,
    tree::Sidecar,
};

/// An image to unpack.
#[derive(Debug, Clone)]
pub struct Package {
    /// The digest that its reference resolved to; also the tree's name.
    pub digest: Digest,
    /// The manifest for this platform.
    pub platform_digest: Digest,
    /// The labels of its configuration.
    pub labels: BTreeMap<String, String>,
    /// Its layers, lowest first.
    pub layers: Vec<(Digest, LayerKind)>,
}

impl Store {
    /// Unpacks the layers of an image, which are in the store, to its tree. Entries outside of
    /// `/data` are ignored. Concurrent calls for the same digest wait and return the same tree. A
    /// failure leaves nothing behind.
    ///
    /// Every entry under `/data` must be a file, a directory, or a link to something under `/data`.
    ///
    /// # Errors
    /// [`Error::Entry`], [`Error::Layer`] and [`Error::Package`] if the image is at fault;
    /// [`Error::BlobMissing`] and [`Error::BlobCorrupt`] if a layer has to be pulled again;
    /// [`Error::Full`] and [`Error::NoSpace`] if the tree does not fit.
    pub fn unpack(&self, package: &Package, in_use: InUse<'_>) -> Result<Tree> {
        self.once(package.digest, || self.unpack_new(package, in_use))
    }

    /// The tree of `digest`, which `make` makes if the store does not have it. Concurrent calls for
    /// the same digest wait for one another.
    fn once(&self, digest: Digest, make: impl FnOnce() -> Result<Tree>) -> Result<Tree> {
        let turn = self.inner.turn(digest);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = self.tree(&digest) {
            return Ok(tree);
        }
        let started = Instant::now();
        match make() {
            Ok(tree) => {
                metrics::unpacked(started.elapsed());
                self.refresh_metrics();
                Ok(tree)
            }
            Err(error) => {
                metrics::unpack_failed(&error);
                Err(error)
            }
        }
    }

    fn unpack_new(&self, package: &Package, in_use: InUse<'_>) -> Result<Tree> {
        let layout = &self.inner.layout;
        let digests: Vec<_> = package.layers.iter().map(|(layer, _)| *layer).collect();
        let reservation = Reservation::for_tree(&self.inner, package.digest, &digests);
        let staging = Staging::make(&layout.trees())?;
        let mut unpacking = Unpacking {
            store: self,
            root: Root::open(staging.0.clone())?,
            budget: Budget { max: self.inner.limits.max_bytes, used: 0 },
            entries: 0,
            links: Links::new(),
            room: Room { reservation: &reservation, in_use },
        };
        for layer in &package.layers {
            unpacking.layer(*layer)?;
        }
        let links = std::mem::take(&mut unpacking.links);
        let sealed = seal::seal(&staging.0, package.digest, &links, &self.inner.layouts)?;
        self.keep(&staging, package.clone(), sealed)
    }

    /// Makes `staging`, which holds the files of `package`, its tree.
    fn keep(&self, staging: &Staging, package: Package, sealed: (Parts, u64)) -> Result<Tree> {
        let (layout, (parts, bytes)) = (&self.inner.layout, sealed);
        let Package { digest, platform_digest, labels, layers } = package;
        let sidecar = Sidecar {
            digest,
            platform_digest,
            bytes,
            labels,
            layers: layers.into_iter().map(|(layer, _)| layer).collect(),
            model: parts.model,
            metadata: parts.metadata,
            golden: parts.golden,
            profile: parts.profile,
        };
        sidecar.write(&staging.0)?;
        disk::sync_dir(&staging.0)?;
        // An entry at the final path was not a valid tree, or it would have been returned above.
        disk::remove_tree(&layout.tree(&digest))?;
        disk::rename(&staging.0, &layout.tree(&digest))?;
        self.inner.seen().forget(&digest);
        sidecar.layers.iter().for_each(|layer| disk::touch(&layout.blob(layer)));
        self.tree(&digest).ok_or(Error::TreeMissing(digest))
    }
}

/// The state of unpacking one image.
struct Unpacking<'a> {
    store: &'a Store,
    root: Root,
    budget: Budget,
    entries: u64,
    links: Links,
    room: Room<'a>,
}

/// A directory with a temporary name, removed on drop unless it was renamed.
struct Staging(PathBuf);

impl Unpacking<'_> {
    fn layer(&mut self, layer: (Digest, LayerKind)) -> Result<()> {
        let path = self.store.inner.layout.blob(&layer.0);
        self.apply(&path, layer).map_err(|error| match error {
            // If the blob no longer has its digest, the disk is at fault and not the image.
            Error::Layer { .. } | Error::Entry { .. } => {
                blobs::verify(&path, layer.0).err().unwrap_or(error)
            }
            other => other,
        })
    }

    fn apply(&mut self, path: &Path, layer: (Digest, LayerKind)) -> Result<()> {
        let source = Source::open(path.to_owned(), layer, &mut self.budget)?;
        let mut archive = Archive::new(source);
        let mut writer = Writer::new(&self.root, layer.0, &mut self.links, &self.room);
        let mut entries = Entries {
            layer: layer.0,
            max: self.store.inner.limits.max_entries,
            count: &mut self.entries,
        };
        while let Some(entry) = archive.next()? {
            if is_ignored(&entry.name) {
                continue;
            }
            entries.add(1)?;
            writer.entry(&entry, &mut archive).map_err(|fault| match fault {
                Fault::Failed(error) => error,
                Fault::Entry(problem) => {
                    Error::Entry { layer: layer.0, entry: shown(&entry.name), problem }
                }
            })?;
            // Parent directories count as entries too, because one deep name creates many of them.
            let implied = self.root.take_implied();
            entries.add(implied)?;
            self.room.entries(implied)?;
        }
        archive.finish()
    }
}

/// Counts entries towards the image's limit.
struct Entries<'a> {
    layer: Digest,
    max: u64,
    count: &'a mut u64,
}

impl Entries<'_> {
    fn add(&mut self, more: u64) -> Result<()> {
        *self.count += more;
        if *self.count <= self.max {
            return Ok(());
        }
        let problem = LayerProblem::TooManyEntries(self.max);
        Err(Error::Layer { layer: self.layer, problem })
    }
}

impl Staging {
    fn make(dir: &Path) -> Result<Self> {
        let staging = Self(disk::temporary(dir));
        disk::make_dir(&staging.0)?;
        Ok(staging)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = disk::remove(&self.0) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot remove an unfinished tree"
            );
        }
    }
}

#[cfg(test)]
mod tests;
