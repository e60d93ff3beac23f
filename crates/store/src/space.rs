//! The space that the store takes, reservations, and eviction.

mod measure;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use bytesize::ByteSize;
use outrigger_core::Digest;

use crate::{Error, Result, Store, store::Inner};
pub(crate) use measure::on_disk;

/// Reports whether the tree of an image must stay. It is called while the store is locked, so it
/// must not call the store.
pub type InUse<'a> = &'a dyn Fn(&Digest) -> bool;

/// Space that must stay free on the disk, for the journal and for other programs.
const DISK_MARGIN: u64 = 16 << 20;

/// The store's usage of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Complete layers.
    pub blobs: ByteSize,
    /// Partial downloads.
    pub partial: ByteSize,
    /// Unpacked images.
    pub trees: ByteSize,
}

/// Space reserved for one pull or one unpacking, whose layers are also protected from eviction.
/// Dropping it ends both.
///
/// Sizes in a manifest are claims: space is reserved only as the bytes of a layer arrive, so that an
/// image which claims much and sends little evicts nothing and blocks no other pull.
#[derive(Debug)]
#[must_use = "the reservation ends when it is dropped"]
pub struct Reservation {
    inner: Arc<Inner>,
    id: u64,
}

/// All reservations in force.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    next: u64,
    open: BTreeMap<u64, Claim>,
}

#[derive(Debug, Default)]
struct Claim {
    /// Layers that are protected from eviction, with the bytes reserved for each.
    layers: BTreeMap<Digest, u64>,
    /// The tree that is being unpacked.
    tree: Option<Digest>,
    /// Bytes reserved for the tree while it is unpacked.
    reserved: u64,
    /// Bytes written to the tree so far.
    written: u64,
}

/// Space that is reserved but not in use yet.
struct Pending {
    /// Bytes that count towards the configured size.
    size: u64,
    /// Bytes that are still to be written to the disk.
    unwritten: u64,
}

/// The evictions that make room for the reservations.
struct Room {
    /// Bytes used with all reservations, before any eviction.
    used: u64,
    /// The configured size.
    max: u64,
    /// Bytes that must be free on the disk.
    wanted: u64,
    /// The content that may be evicted, in this order.
    candidates: Vec<measure::Candidate>,
}

impl Store {
    /// Protects `layers`, each with its size in bytes, and those of them that are in the store
    /// already. Call it before [`Store::has_blob`], and keep it until the image is unpacked. Space
    /// is reserved by [`Reservation::grow`]; nothing is evicted before.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::NoSpace`] if the layers would not fit even after the eviction of
    /// all content that is not in use.
    pub fn reserve(&self, layers: &[(Digest, u64)], in_use: InUse<'_>) -> Result<Reservation> {
        let claim = Claim { layers: largest(layers.iter().copied()), ..Claim::default() };
        let needs_space = claim.layers.iter().any(|(it, size)| present(&self.inner, it) < *size);
        let mut claims = self.inner.claims();
        let reservation = Reservation::open(&self.inner, &mut claims, claim);
        let room = if needs_space { self.inner.room(&claims, in_use) } else { Ok(None) };
        // The sizes count for this check only.
        let claim = claims.open.get_mut(&reservation.id).expect("open until dropped");
        claim.layers.values_mut().for_each(|reserved| *reserved = 0);
        drop(claims);
        room.map(|_| reservation)
    }

    /// Takes the images whose trees were evicted since the last call.
    pub fn take_evicted(&self) -> Vec<Digest> {
        std::mem::take(&mut self.inner.evicted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Measures the store again, which updates the metrics.
    pub(crate) fn refresh_metrics(&self) {
        if let Err(error) = self.usage() {
            tracing::warn!(%error, "the store cannot be measured");
        }
    }

    /// Measures the store's present usage.
    pub fn usage(&self) -> Result<Usage> {
        self.inner.measure()
    }
}

impl Usage {
    /// The sum of all kinds.
    pub fn total(&self) -> ByteSize {
        ByteSize(self.blobs.as_u64() + self.partial.as_u64() + self.trees.as_u64())
    }
}

impl Reservation {
    /// A reservation for unpacking: protects the layers; space for the tree is reserved as it
    /// grows.
    pub(crate) fn for_tree(inner: &Arc<Inner>, tree: Digest, layers: &[Digest]) -> Self {
        let layers = layers.iter().map(|layer| (*layer, 0)).collect();
        let claim = Claim { layers, tree: Some(tree), ..Claim::default() };
        Self::open(inner, &mut inner.claims(), claim)
    }

    fn open(inner: &Arc<Inner>, claims: &mut Claims, claim: Claim) -> Self {
        let id = claims.next;
        claims.next += 1;
        claims.open.insert(id, claim);
        Self { inner: Arc::clone(inner), id }
    }

    /// Reserves space for the first `length` bytes of `layer`, of `size` bytes in all, which are
    /// about to be written. Evicts content that is not in use until they fit; evicts nothing if
    /// they would not fit even so.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::NoSpace`].
    pub fn grow(&self, layer: &Digest, length: u64, size: u64, in_use: InUse<'_>) -> Result<()> {
        let mut claims = self.inner.claims();
        let claim = claims.open.get_mut(&self.id).expect("open until dropped");
        let reserved = claim.layers.entry(*layer).or_default();
        if length <= *reserved {
            return Ok(());
        }
        *reserved = length.saturating_add(self.inner.step()).min(size.max(length));
        if self.inner.make_room(&claims, in_use).is_ok() {
            return Ok(());
        }
        let claim = claims.open.get_mut(&self.id).expect("open until dropped");
        claim.layers.insert(*layer, length);
        self.inner.make_room(&claims, in_use)
    }

    /// Reserves space for `bytes` more, which are about to be written to the tree.
    pub(crate) fn write(&self, bytes: u64, in_use: InUse<'_>) -> Result<()> {
        let mut claims = self.inner.claims();
        let claim = claims.open.get_mut(&self.id).expect("open until dropped");
        claim.written = claim.written.saturating_add(bytes);
        if claim.written <= claim.reserved {
            return Ok(());
        }
        let least = claim.written;
        claim.reserved = least.saturating_add(self.inner.step());
        if self.inner.make_room(&claims, in_use).is_ok() {
            return Ok(());
        }
        claims.open.get_mut(&self.id).expect("open until dropped").reserved = least;
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

    /// Sums up what all reservations still need. A layer in several reservations counts once.
    fn pending(&self, inner: &Inner) -> Pending {
        let layers = self.open.values().flat_map(|claim| &claim.layers);
        let layers = largest(layers.map(|(layer, size)| (*layer, *size)));
        let missing = |(layer, size): (Digest, u64)| size.saturating_sub(present(inner, &layer));
        let layers = total(layers.into_iter().map(missing));
        let reserved = total(self.open.values().map(|claim| claim.reserved));
        let written = total(self.open.values().map(|claim| claim.written));
        Pending {
            size: layers.saturating_add(reserved),
            unwritten: layers.saturating_add(reserved.saturating_sub(written)),
        }
    }
}

impl Inner {
    /// The step in which space is reserved, so that many small writes do not each cause a
    /// measurement of the whole store.
    fn step(&self) -> u64 {
        (self.max_size.as_u64() / 64).min(64 << 20)
    }

    /// Evicts until all reservations fit.
    fn make_room(&self, claims: &Claims, in_use: InUse<'_>) -> Result<()> {
        let Some(Room { mut used, max, wanted, candidates }) = self.room(claims, in_use)? else {
            return Ok(());
        };
        for candidate in candidates {
            if used <= max && wanted <= self.free()? {
                return Ok(());
            }
            candidate.evict()?;
            let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
            evicted.extend(candidate.tree());
            used -= candidate.bytes;
        }
        let enough = used <= max && wanted <= self.free()?;
        let no_space = || Error::NoSpace { path: self.layout.root.clone(), source: None };
        enough.then_some(()).ok_or_else(no_space)
    }

    /// The evictions that make room for all reservations; `None` if none is needed.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::NoSpace`] if no eviction would be enough.
    fn room(&self, claims: &Claims, in_use: InUse<'_>) -> Result<Option<Room>> {
        let pending = claims.pending(self);
        let max = self.max_size.as_u64();
        let used = self.measure()?.total().as_u64().saturating_add(pending.size);
        let wanted = pending.unwritten.saturating_add(DISK_MARGIN);
        if used <= max && wanted <= self.free()? {
            return Ok(None);
        }
        let candidates = self.candidates(claims, in_use)?;
        let evictable: u64 = candidates.iter().map(|candidate| candidate.bytes).sum();
        if used.saturating_sub(evictable) > max {
            let used = used.saturating_sub(evictable).saturating_sub(pending.size);
            return Err(self.full(pending.size, used));
        }
        if wanted > self.free()?.saturating_add(evictable) {
            return Err(Error::NoSpace { path: self.layout.root.clone(), source: None });
        }
        Ok(Some(Room { used, max, wanted, candidates }))
    }

    fn full(&self, needed: u64, used: u64) -> Error {
        Error::Full { needed: ByteSize(needed), used: ByteSize(used), max: self.max_size }
    }

    /// Free bytes on the disk that this user may use.
    fn free(&self) -> Result<u64> {
        let root = &self.layout.root;
        let disk = rustix::fs::statvfs(root)
            .map_err(|error| Error::io("look at the disk of", root, error.into()))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// The layers, each with its largest stated size: an image may list one several times with
/// different sizes.
fn largest(layers: impl Iterator<Item = (Digest, u64)>) -> BTreeMap<Digest, u64> {
    let mut all = BTreeMap::new();
    for (layer, size) in layers {
        let largest = all.entry(layer).or_insert(size);
        *largest = size.max(*largest);
    }
    all
}

/// The sum, saturating: sizes come from untrusted images.
fn total(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Bytes of a layer that are in the store, complete or partial.
fn present(inner: &Inner, layer: &Digest) -> u64 {
    let length = |path: PathBuf| fs::metadata(path).map(|metadata| metadata.len()).ok();
    length(inner.layout.blob(layer)).or_else(|| length(inner.layout.partial(layer))).unwrap_or(0)
}

#[cfg(test)]
mod tests;
