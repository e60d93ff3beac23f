//! Measures the store's content, and lists what may be evicted.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytesize::ByteSize;
use outrigger_core::Digest;

use super::{Claims, InUse, Usage};
use crate::{
    Result, disk,
    metrics::{self, Kind},
    serving::all_published,
    store::{Inner, digest_of},
    tree,
};

/// The allocation unit of common file systems, bytes.
const BLOCK: u64 = 4096;

/// An item that may be evicted.
#[derive(Debug)]
pub(super) struct Candidate {
    kind: Kind,
    used: SystemTime,
    path: PathBuf,
    pub(super) bytes: u64,
}

impl Inner {
    /// Measures the store's usage of the disk.
    pub(super) fn measure(&self) -> Result<Usage> {
        let sum = |dir: &Path| -> Result<u64> { Ok(files(dir)?.map(|file| file.bytes).sum()) };
        let trees = tree::all(&self.layout)?.iter().map(|tree| tree.size().as_u64()).sum();
        let usage = Usage {
            blobs: ByteSize(sum(&self.layout.blobs())?),
            partial: ByteSize(sum(&self.layout.partials())?),
            trees: ByteSize(trees),
        };
        metrics::measured(Kind::Blob, usage.blobs);
        metrics::measured(Kind::Partial, usage.partial);
        metrics::measured(Kind::Tree, usage.trees);
        Ok(usage)
    }

    /// The items that may be evicted, in the order of eviction: layers before trees, each least
    /// recently used first.
    pub(super) fn candidates(&self, claims: &Claims, in_use: InUse<'_>) -> Result<Vec<Candidate>> {
        let mut all = Vec::new();
        for (dir, kind) in
            [(self.layout.blobs(), Kind::Blob), (self.layout.partials(), Kind::Partial)]
        {
            let is_free = |file: &File| {
                digest_of(&file.path).is_none_or(|digest| !claims.protects_layer(&digest))
            };
            let free = files(&dir)?.filter(is_free);
            all.extend(free.map(|File { path, bytes, used }| Candidate {
                kind,
                used,
                path,
                bytes,
            }));
        }
        all.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        all.extend(self.free_trees(claims, in_use)?);
        Ok(all)
    }

    fn free_trees(
        &self,
        claims: &Claims,
        in_use: InUse<'_>,
    ) -> Result<impl Iterator<Item = Candidate>> {
        let published = self.published_trees()?;
        let stays = |digest: &Digest| {
            published.contains(digest) || claims.protects_tree(digest) || in_use(digest)
        };
        let mut trees = tree::all(&self.layout)?;
        trees.retain(|tree| !stays(tree.digest()));
        trees.sort_by_key(|tree| (tree.last_used(), *tree.digest()));
        Ok(trees.into_iter().map(|tree| Candidate {
            kind: Kind::Tree,
            used: tree.last_used(),
            path: self.layout.tree(tree.digest()),
            bytes: tree.size().as_u64(),
        }))
    }

    /// Digests of the trees that are published to any engine.
    pub(crate) fn published_trees(&self) -> Result<BTreeSet<Digest>> {
        let published = all_published(&self.layout)?.into_iter();
        Ok(published.filter_map(|published| published.tree).collect())
    }
}

impl Candidate {
    /// The image, if this is its tree.
    pub(super) fn tree(&self) -> Option<Digest> {
        matches!(self.kind, Kind::Tree).then(|| digest_of(&self.path)).flatten()
    }

    pub(super) fn evict(&self) -> Result<()> {
        let (kind, path) = (self.kind.as_str(), self.path.display());
        tracing::info!(kind, %path, bytes = self.bytes, "evicted to make room");
        metrics::evicted(self.kind);
        match self.kind {
            Kind::Tree => disk::remove_tree(&self.path),
            Kind::Blob | Kind::Partial => disk::remove(&self.path),
        }
    }
}

/// Bytes on the disk that a file of `bytes` takes: at least one block.
pub(crate) fn on_disk(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

/// A file of the store.
struct File {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// The files of a directory, with the bytes that they take.
fn files(dir: &Path) -> Result<impl Iterator<Item = File>> {
    // The owner of a download may rename or remove its file at any time.
    Ok(disk::list(dir)?.into_iter().filter_map(|path| {
        let metadata = fs::symlink_metadata(&path).ok()?;
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Some(File { path, bytes: on_disk(metadata.len()), used })
    }))
}
