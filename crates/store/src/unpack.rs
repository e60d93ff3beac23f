//! From layers to a tree: nothing in an image is trusted.

mod archive;
mod name;
mod root;
mod seal;
mod source;
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
    name::shown,
    root::{Fault, Root},
    seal::Links,
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
    /// What its reference resolved to; the tree is called so.
    pub digest: Digest,
    /// The manifest for this platform.
    pub platform_digest: Digest,
    /// The labels of its configuration.
    pub labels: BTreeMap<String, String>,
    /// Its layers, the lowest first.
    pub layers: Vec<(Digest, LayerKind)>,
}

impl Store {
    /// Unpacks the layers of an image, which are in the store, to its tree. What
    /// lies outside of `/data` is checked and not written. Who comes second for
    /// the same digest waits and gets the same tree. A failure leaves nothing.
    ///
    /// Every entry must be a file, a directory, or a link that stays inside of
    /// the image; under `/data` a link must also lead to something under `/data`.
    ///
    /// # Errors
    /// [`Error::Entry`], [`Error::Layer`] and [`Error::Package`] for what the
    /// image is to blame for; [`Error::BlobMissing`] and [`Error::BlobCorrupt`]
    /// when a layer has to be pulled again; [`Error::Full`] and
    /// [`Error::NoSpace`] when it does not fit.
    pub fn unpack(&self, package: &Package, in_use: InUse<'_>) -> Result<Tree> {
        let turn = self.inner.turn(package.digest);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = self.tree(&package.digest) {
            return Ok(tree);
        }
        let started = Instant::now();
        match self.unpack_new(package, in_use) {
            Ok(tree) => {
                metrics::unpacked(started.elapsed());
                self.note_usage();
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
        let reservation = Reservation::for_tree(&self.inner, package.digest, &digests)?;
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
        let (parts, bytes) = seal::seal(&staging.0, package.digest, &links)?;
        let sidecar = Sidecar {
            digest: package.digest,
            platform_digest: package.platform_digest,
            bytes,
            labels: package.labels.clone(),
            layers: digests,
            model: parts.model,
            metadata: parts.metadata,
            golden: parts.golden,
            profile: parts.profile,
        };
        sidecar.write(&staging.0)?;
        disk::sync_dir(&staging.0)?;
        // What stands there could not be opened as a tree.
        disk::remove_tree(&layout.tree(&package.digest))?;
        disk::rename(&staging.0, &layout.tree(&package.digest))?;
        sidecar.layers.iter().for_each(|layer| disk::touch(&layout.blob(layer)));
        self.tree(&package.digest).ok_or(Error::TreeMissing(package.digest))
    }
}

/// One image on its way to a tree.
struct Unpacking<'a> {
    store: &'a Store,
    root: Root,
    budget: Budget,
    entries: u64,
    links: Links,
    room: Room<'a>,
}

/// A directory without a name of its own, removed unless it was renamed.
struct Staging(PathBuf);

impl Unpacking<'_> {
    fn layer(&mut self, layer: (Digest, LayerKind)) -> Result<()> {
        let path = self.store.inner.layout.blob(&layer.0);
        self.apply(&path, layer).map_err(|error| match error {
            // A damaged disk must not be blamed on the image.
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
            entries.add(1)?;
            writer.entry(&entry, &mut archive).map_err(|fault| match fault {
                Fault::Failed(error) => error,
                Fault::Entry(problem) => {
                    Error::Entry { layer: layer.0, entry: shown(&entry.name), problem }
                }
            })?;
            // One deep name makes many directories, and they are not free.
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
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot remove a half tree");
        }
    }
}

#[cfg(test)]
mod tests;
