//! How much the store takes, and making room.

mod measure;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use bytesize::ByteSize;
use outrigger_core::Digest;

use crate::{Error, Result, Store, store::Inner};
pub(crate) use measure::on_disk;

/// Says whether the tree of an image must stay. Called with the store locked:
/// it must not call the store.
pub type InUse<'a> = &'a dyn Fn(&Digest) -> bool;

/// Left on the disk for the journal and for others.
const DISK_MARGIN: u64 = 16 << 20;

/// What the store takes on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Complete layers.
    pub blobs: ByteSize,
    /// Layers on their way.
    pub partial: ByteSize,
    /// Unpacked images.
    pub trees: ByteSize,
}

/// Space promised to one pull or one unpacking, and the protection of its
/// layers from eviction; both end when it is dropped.
#[derive(Debug)]
#[must_use = "the promise ends when the reservation is dropped"]
pub struct Reservation {
    inner: Arc<Inner>,
    id: u64,
}

/// All open reservations.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    next: u64,
    open: BTreeMap<u64, Claim>,
}

#[derive(Debug, Default)]
struct Claim {
    /// Layers that must stay, with the sizes they will have.
    layers: BTreeMap<Digest, u64>,
    /// The tree that is being made.
    tree: Option<Digest>,
    /// Bytes promised to the tree while it has no name yet, and written so far.
    promised: u64,
    written: u64,
}

/// What is promised and not there yet.
struct Pending {
    /// Counts towards the configured size.
    size: u64,
    /// Is still to be written to the disk.
    unwritten: u64,
}

impl Store {
    /// Promises space for the download of `layers`, each with its size in
    /// bytes, and keeps those that are there already: so it comes before
    /// [`Store::has_blob`], and is held until the image is unpacked. Evicts what
    /// is not in use until they fit; evicts nothing if that would not be enough.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::NoSpace`].
    pub fn reserve(&self, layers: &[(Digest, u64)], in_use: InUse<'_>) -> Result<Reservation> {
        let claim = Claim { layers: largest(layers.iter().copied()), ..Claim::default() };
        Reservation::open(&self.inner, claim, in_use)
    }

    /// Looks again at what the store takes, for those who watch.
    pub(crate) fn note_usage(&self) {
        if let Err(error) = self.usage() {
            tracing::warn!(%error, "the store cannot be measured");
        }
    }

    /// What the store takes now.
    pub fn usage(&self) -> Result<Usage> {
        let claims = self.inner.claims();
        Ok(self.inner.measure(&claims, &|_| true)?.usage)
    }
}

impl Usage {
    /// Everything together.
    pub fn total(&self) -> ByteSize {
        ByteSize(self.blobs.as_u64() + self.partial.as_u64() + self.trees.as_u64())
    }
}

impl Reservation {
    /// For unpacking: the layers stay, room for the tree is asked for as it grows.
    pub(crate) fn for_tree(inner: &Arc<Inner>, tree: Digest, layers: &[Digest]) -> Result<Self> {
        let layers = layers.iter().map(|layer| (*layer, 0)).collect();
        let claim = Claim { layers, tree: Some(tree), ..Claim::default() };
        Self::open(inner, claim, &|_| true)
    }

    fn open(inner: &Arc<Inner>, claim: Claim, in_use: InUse<'_>) -> Result<Self> {
        let mut claims = inner.claims();
        let id = claims.next;
        claims.next += 1;
        // With nothing to write nobody has to go, even if the store is over its size.
        let asks = claim.layers.iter().any(|(layer, size)| present(inner, layer) < *size);
        claims.open.insert(id, claim);
        let made = if asks { inner.make_room(&claims, in_use) } else { Ok(()) };
        made.inspect_err(|_| drop(claims.open.remove(&id)))?;
        drop(claims);
        Ok(Self { inner: Arc::clone(inner), id })
    }

    /// Says that `bytes` more are about to be written to the tree.
    pub(crate) fn write(&self, bytes: u64, in_use: InUse<'_>) -> Result<()> {
        let mut claims = self.inner.claims();
        let claim = claims.open.get_mut(&self.id).expect("open until dropped");
        claim.written = claim.written.saturating_add(bytes);
        if claim.written <= claim.promised {
            return Ok(());
        }
        // In steps, so that many small files do not each look at the whole store.
        let least = claim.written;
        claim.promised = least.saturating_add((self.inner.max_size.as_u64() / 64).min(64 << 20));
        if self.inner.make_room(&claims, in_use).is_ok() {
            return Ok(());
        }
        claims.open.get_mut(&self.id).expect("open until dropped").promised = least;
        self.inner.make_room(&claims, in_use)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.inner.claims().open.remove(&self.id);
    }
}

impl Claims {
    pub(crate) fn protects_layer(&self, digest: &Digest) -> bool {
        self.open.values().any(|claim| claim.layers.contains_key(digest))
    }

    fn protects_tree(&self, digest: &Digest) -> bool {
        self.open.values().any(|claim| claim.tree.as_ref() == Some(digest))
    }

    /// A layer that several wait for is counted once.
    fn pending(&self, inner: &Inner) -> Pending {
        let layers = self.open.values().flat_map(|claim| &claim.layers);
        let layers = largest(layers.map(|(layer, size)| (*layer, *size)));
        let missing = |(layer, size): (Digest, u64)| size.saturating_sub(present(inner, &layer));
        let layers = total(layers.into_iter().map(missing));
        let promised = total(self.open.values().map(|claim| claim.promised));
        let written = total(self.open.values().map(|claim| claim.written));
        Pending {
            size: layers.saturating_add(promised),
            unwritten: layers.saturating_add(promised.saturating_sub(written)),
        }
    }
}

impl Inner {
    /// Evicts until everything promised fits.
    fn make_room(&self, claims: &Claims, in_use: InUse<'_>) -> Result<()> {
        let measured = self.measure(claims, in_use)?;
        let pending = claims.pending(self);
        let max = self.max_size.as_u64();
        let evictable: u64 = measured.candidates.iter().map(|candidate| candidate.bytes).sum();
        let mut used = measured.usage.total().as_u64().saturating_add(pending.size);
        if used.saturating_sub(evictable) > max {
            let used = used.saturating_sub(evictable).saturating_sub(pending.size);
            return Err(self.full(pending.size, used));
        }
        let wanted = pending.unwritten.saturating_add(DISK_MARGIN);
        if wanted > self.free()?.saturating_add(evictable) {
            return Err(Error::NoSpace { path: self.layout.root.clone(), source: None });
        }
        for candidate in measured.candidates {
            if used <= max && wanted <= self.free()? {
                return Ok(());
            }
            candidate.evict()?;
            used -= candidate.bytes;
        }
        let enough = used <= max && wanted <= self.free()?;
        let no_space = || Error::NoSpace { path: self.layout.root.clone(), source: None };
        enough.then_some(()).ok_or_else(no_space)
    }

    fn full(&self, needed: u64, used: u64) -> Error {
        Error::Full { needed: ByteSize(needed), used: ByteSize(used), max: self.max_size }
    }

    /// Bytes free on the disk for this user.
    fn free(&self) -> Result<u64> {
        let root = &self.layout.root;
        let disk = rustix::fs::statvfs(root)
            .map_err(|error| Error::io("look at the disk of", root, error.into()))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// The layers, each with the largest size it is said to have: an image may name
/// one several times, and lie.
fn largest(layers: impl Iterator<Item = (Digest, u64)>) -> BTreeMap<Digest, u64> {
    let mut all = BTreeMap::new();
    for (layer, size) in layers {
        let largest = all.entry(layer).or_insert(size);
        *largest = size.max(*largest);
    }
    all
}

/// The sum, however large an image says its layers are.
fn total(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// How much of a layer is there.
fn present(inner: &Inner, layer: &Digest) -> u64 {
    let length = |path: PathBuf| fs::metadata(path).map(|metadata| metadata.len()).ok();
    length(inner.layout.blob(layer)).or_else(|| length(inner.layout.partial(layer))).unwrap_or(0)
}

#[cfg(test)]
mod tests;
