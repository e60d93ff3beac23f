//! Unpacked images.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytesize::ByteSize;
use outrigger_core::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    Error, PackageProblem, Result, Store, disk,
    store::{Layout, digest_of},
};

/// The sidecar's name. It lies beside `data/`, out of any image's reach.
const SIDECAR: &str = "tree.json";
/// More than any sidecar of ours has.
const MAX_SIDECAR: u64 = 64 << 20;
/// What the image is signed by, beside the sidecar.
const SIGNATURES: &str = "signatures.json";
/// More than all signatures that are read of an image.
const MAX_SIGNATURES: u64 = 64 << 20;

/// Vocabularies make metadata.json large, but not larger.
pub(crate) const MAX_METADATA: ByteSize = ByteSize::mib(16);
/// Bounds the golden cases, which are read as a whole.
pub(crate) const MAX_GOLDEN: ByteSize = ByteSize::mib(256);
/// More than a profile of all that is allowed takes.
pub(crate) const MAX_PROFILE: ByteSize = ByteSize::mib(16);
/// No protobuf message can be larger.
pub(crate) const MAX_SAVED_MODEL: ByteSize = ByteSize::gib(2);

/// An unpacked, verified image. It stays on the disk for as long as it is
/// published or named as in use.
#[derive(Debug, Clone)]
pub struct Tree {
    path: PathBuf,
    last_used: SystemTime,
    sidecar: Sidecar,
}

/// What is remembered of a tree; its paths are relative to the tree's directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sidecar {
    pub(crate) digest: Digest,
    pub(crate) platform_digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) layers: Vec<Digest>,
    pub(crate) model: String,
    pub(crate) metadata: String,
    pub(crate) golden: Option<String>,
    #[serde(default)]
    pub(crate) profile: Option<String>,
}

impl Store {
    /// The tree of `image`, if it is there.
    pub fn tree(&self, image: &Digest) -> Option<Tree> {
        open(&self.inner.layout, image)
    }

    /// All trees, in the order of their digests.
    pub fn trees(&self) -> Result<Vec<Tree>> {
        all(&self.inner.layout)
    }

    /// Keeps what `image` is signed by with its tree. It is not looked at here.
    ///
    /// # Errors
    /// [`Error::TreeMissing`] and the disk's.
    pub fn keep_signatures(&self, image: &Digest, content: &[u8]) -> Result<()> {
        // So that the tree does not go meanwhile.
        let _claims = self.inner.claims();
        let tree = self.inner.layout.tree(image);
        match tree.join(SIDECAR).is_file() {
            true => disk::replace(&tree.join(SIGNATURES), content),
            false => Err(Error::TreeMissing(*image)),
        }
    }

    /// Notes that the tree of `image` was used now: it will be evicted later.
    pub fn touch(&self, image: &Digest) {
        disk::touch(&self.inner.layout.tree(image).join(SIDECAR));
    }

    /// Removes the tree of `image` with those of its layers that no other tree
    /// and no reservation wants; nothing there is fine.
    ///
    /// # Errors
    /// [`Error::TreePublished`] while a servable is published from it.
    pub fn remove_tree(&self, image: &Digest) -> Result<()> {
        let layout = &self.inner.layout;
        let claims = self.inner.claims();
        if self.inner.published_trees()?.contains(image) {
            return Err(Error::TreePublished(*image));
        }
        let layers = self.tree(image).map(|tree| tree.sidecar.layers).unwrap_or_default();
        disk::remove_tree(&layout.tree(image))?;
        let others = all(layout)?;
        let wanted = |layer: &Digest| {
            claims.protects_layer(layer)
                || others.iter().any(|tree| tree.sidecar.layers.contains(layer))
        };
        let unwanted = layers.iter().filter(|layer| !wanted(layer));
        let removed = unwanted.map(|layer| layout.blob(layer)).try_for_each(|it| disk::remove(&it));
        drop(claims);
        self.note_usage();
        removed
    }
}

impl Tree {
    /// The image's digest: what its reference resolved to.
    pub fn digest(&self) -> &Digest {
        &self.sidecar.digest
    }

    /// The digest of the manifest for this platform.
    pub fn platform_digest(&self) -> &Digest {
        &self.sidecar.platform_digest
    }

    /// What it takes on the disk.
    pub fn size(&self) -> ByteSize {
        ByteSize(self.sidecar.bytes)
    }

    /// The labels of the image's configuration.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.sidecar.labels
    }

    /// When it was last published, unpublished or touched.
    pub fn last_used(&self) -> SystemTime {
        self.last_used
    }

    /// The directory of the SavedModel, as this process sees it.
    pub fn model_dir(&self) -> PathBuf {
        self.path.join(&self.sidecar.model)
    }

    /// The same, relative to the tree's own directory.
    pub(crate) fn model(&self) -> &str {
        &self.sidecar.model
    }

    /// The bytes of `metadata.json`.
    pub fn metadata_bytes(&self) -> Result<Vec<u8>> {
        self.read(&self.sidecar.metadata, MAX_METADATA)
    }

    /// The bytes of `golden.jsonl`, if there is one.
    pub fn golden_bytes(&self) -> Result<Option<Vec<u8>>> {
        self.sidecar.golden.as_ref().map(|golden| self.read(golden, MAX_GOLDEN)).transpose()
    }

    /// The bytes of `profile.json`, if there is one.
    pub fn profile_bytes(&self) -> Result<Option<Vec<u8>>> {
        self.sidecar.profile.as_ref().map(|profile| self.read(profile, MAX_PROFILE)).transpose()
    }

    /// The bytes of the SavedModel's `saved_model.pb`.
    pub fn saved_model_bytes(&self) -> Result<Vec<u8>> {
        self.read(&format!("{}/saved_model.pb", self.sidecar.model), MAX_SAVED_MODEL)
    }

    /// What was kept by [`Store::keep_signatures`], if it can be read.
    pub fn signatures_bytes(&self) -> Option<Vec<u8>> {
        disk::read(&self.path.join(SIGNATURES), MAX_SIGNATURES).ok().flatten()
    }

    fn read(&self, file: &str, max: ByteSize) -> Result<Vec<u8>> {
        let path = self.path.join(file);
        disk::read(&path, max.as_u64())?.ok_or_else(|| {
            let size = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
            let problem =
                PackageProblem::TooLarge { path: file.to_owned(), size: ByteSize(size), max };
            Error::Package { image: *self.digest(), problem }
        })
    }
}

impl Sidecar {
    /// Writes it to the tree at `tree`, which has no name yet.
    pub(crate) fn write(&self, tree: &Path) -> Result<()> {
        let content = serde_json::to_vec_pretty(self).expect("text and numbers only");
        disk::write_new(&tree.join(SIDECAR), &content)
    }
}

/// The tree of `image`; one whose sidecar cannot be read is none.
pub(crate) fn open(layout: &Layout, image: &Digest) -> Option<Tree> {
    let path = layout.tree(image);
    let file = path.join(SIDECAR);
    let last_used = file.metadata().and_then(|metadata| metadata.modified()).ok()?;
    let content = disk::read(&file, MAX_SIDECAR).ok().flatten()?;
    match serde_json::from_slice::<Sidecar>(&content) {
        Ok(sidecar) if sidecar.digest == *image => Some(Tree { path, last_used, sidecar }),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(path = %file.display(), %error, "a tree's description is unreadable");
            None
        }
    }
}

pub(crate) fn all(layout: &Layout) -> Result<Vec<Tree>> {
    let paths = disk::list(&layout.trees())?;
    Ok(paths.iter().filter_map(|path| open_at(layout, path)).collect())
}

fn open_at(layout: &Layout, path: &Path) -> Option<Tree> {
    let digest = digest_of(path).filter(|digest| layout.tree(digest) == *path)?;
    open(layout, &digest)
}

/// Removes what is in `trees/` and is none: it could neither be used nor counted.
pub(crate) fn remove_unreadable(layout: &Layout) -> Result<()> {
    for path in disk::list(&layout.trees())? {
        if open_at(layout, &path).is_none() {
            tracing::warn!(path = %path.display(), "removing what is not a tree");
            disk::remove_tree(&path)?;
        }
    }
    Ok(())
}
