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

/// The result of a measurement.
pub(super) struct Measured {
    pub(super) usage: Usage,
    /// Items that may be evicted, in the order of eviction.
    pub(super) candidates: Vec<Candidate>,
}

impl Inner {
    pub(super) fn measure(&self, claims: &Claims, in_use: InUse<'_>) -> Result<Measured> {
        let mut candidates = Vec::new();
        let mut layers = |dir: &Path, kind| -> Result<u64> {
            let free = |digest: &Digest| !claims.protects_layer(digest);
            files(dir, kind, &free, &mut candidates)
        };
        let blobs = layers(&self.layout.blobs(), Kind::Blob)?;
        let partial = layers(&self.layout.partials(), Kind::Partial)?;
        candidates.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        let trees = self.trees(claims, in_use, &mut candidates)?;
        let usage =
            Usage { blobs: ByteSize(blobs), partial: ByteSize(partial), trees: ByteSize(trees) };
        metrics::measured(Kind::Blob, usage.blobs);
        metrics::measured(Kind::Partial, usage.partial);
        metrics::measured(Kind::Tree, usage.trees);
        Ok(Measured { usage, candidates })
    }

    /// Adds the trees that may be evicted, least recently used first; returns the size of all
    /// trees.
    fn trees(&self, claims: &Claims, in_use: InUse<'_>, to: &mut Vec<Candidate>) -> Result<u64> {
        let published = self.published_trees()?;
        let stays = |digest: &Digest| {
            published.contains(digest) || claims.protects_tree(digest) || in_use(digest)
        };
        let mut trees = tree::all(&self.layout)?;
        trees.sort_by_key(|tree| (tree.last_used(), *tree.digest()));
        let total = trees.iter().map(|tree| tree.size().as_u64()).sum();
        to.extend(trees.iter().filter(|tree| !stays(tree.digest())).map(|tree| Candidate {
            kind: Kind::Tree,
            used: tree.last_used(),
            path: self.layout.tree(tree.digest()),
            bytes: tree.size().as_u64(),
        }));
        Ok(total)
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

/// Adds the files of `dir` that may be evicted; returns the size of all files.
fn files(
    dir: &Path,
    kind: Kind,
    free: &dyn Fn(&Digest) -> bool,
    to: &mut Vec<Candidate>,
) -> Result<u64> {
    let mut total = 0;
    for path in disk::list(dir)? {
        // The owner of a download may rename or remove it at any time.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let bytes = on_disk(metadata.len());
        total += bytes;
        if digest_of(&path).is_none_or(|digest| free(&digest)) {
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            to.push(Candidate { kind, used, path, bytes });
        }
    }
    Ok(total)
}
