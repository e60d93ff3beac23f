//! Trees: unpacked images.

use std::{
    collections::{BTreeMap, HashMap},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use bytesize::ByteSize;
use outrigger_core::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    Error, PackageProblem, Result, Store, disk,
    store::{Layout, digest_of},
};

/// The name of the sidecar file. It is beside `data/`, where no entry of an image can be written.
const SIDECAR: &str = "tree.json";
/// The size limit of a sidecar; real ones are far smaller.
const MAX_SIDECAR: u64 = 64 << 20;
/// The name of the file with the image's signatures, beside the sidecar.
const SIGNATURES: &str = "signatures.json";
/// The size limit of the signatures file; the limits for reading signatures keep it far smaller.
const MAX_SIGNATURES: u64 = 64 << 20;

/// The size limit of metadata.json, which vocabularies can make large.
pub(crate) const MAX_METADATA: ByteSize = ByteSize::mib(16);
/// The size limit of the golden cases.
pub(crate) const MAX_GOLDEN: ByteSize = ByteSize::mib(256);
/// The size limit of a profile; a profile at all of its own limits is smaller.
pub(crate) const MAX_PROFILE: ByteSize = ByteSize::mib(16);

/// An unpacked, verified image. It is not evicted while it is published or in use.
#[derive(Debug, Clone)]
pub struct Tree {
    path: PathBuf,
    last_used: SystemTime,
    sidecar: Arc<Sidecar>,
}

/// The stored description of a tree. Paths are relative to the tree's directory.
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

/// The sidecars that were read, by digest, each with the inode and the size of its file. A
/// measurement of the store needs those of all trees, and reading one costs far more than finding
/// its file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sidecars(Arc<Mutex<HashMap<Digest, Read>>>);

type Read = ((u64, u64), Arc<Sidecar>);

impl Sidecars {
    fn all(&self) -> MutexGuard<'_, HashMap<Digest, Read>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, image: &Digest, file: (u64, u64)) -> Option<Arc<Sidecar>> {
        self.all().get(image).filter(|(of, _)| *of == file).map(|(_, sidecar)| Arc::clone(sidecar))
    }
}

impl Store {
    /// The tree of `image`, if the store has it.
    pub fn tree(&self, image: &Digest) -> Option<Tree> {
        open(&self.inner.layout, image)
    }

    /// All trees, in the order of their digests.
    pub fn trees(&self) -> Result<Vec<Tree>> {
        all(&self.inner.layout)
    }

    /// Stores the signatures of `image` with its tree. Their content is not checked here.
    ///
    /// # Errors
    /// [`Error::TreeMissing`], or an error of the disk.
    pub fn keep_signatures(&self, image: &Digest, content: &[u8]) -> Result<()> {
        // The lock keeps the tree from being evicted meanwhile.
        let _claims = self.inner.claims();
        let tree = self.inner.layout.tree(image);
        match tree.join(SIDECAR).is_file() {
            true => disk::replace(&tree.join(SIGNATURES), content),
            false => Err(Error::TreeMissing(*image)),
        }
    }

    /// Sets the time of last use of the tree of `image` to now, for the order of eviction.
    pub fn touch(&self, image: &Digest) {
        disk::touch(&self.inner.layout.tree(image).join(SIDECAR));
    }

    /// Removes the tree of `image`, and those of its layers that neither another tree nor a
    /// reservation uses. Succeeds if there is no tree.
    ///
    /// # Errors
    /// [`Error::TreePublished`] while a servable is published from it.
    pub fn remove_tree(&self, image: &Digest) -> Result<()> {
        let layout = &self.inner.layout;
        let claims = self.inner.claims();
        if self.inner.published_trees()?.contains(image) {
            return Err(Error::TreePublished(*image));
        }
        let layers = self.tree(image).map(|tree| tree.sidecar.layers.clone()).unwrap_or_default();
        disk::remove_tree(&layout.tree(image))?;
        layout.sidecars.all().remove(image);
        let others = all(layout)?;
        let wanted = |layer: &Digest| {
            claims.protects_layer(layer)
                || others.iter().any(|tree| tree.sidecar.layers.contains(layer))
        };
        let unwanted = layers.iter().filter(|layer| !wanted(layer));
        let removed = unwanted.map(|layer| layout.blob(layer)).try_for_each(|it| disk::remove(&it));
        drop(claims);
        self.refresh_metrics();
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

    /// The tree's size on the disk.
    pub fn size(&self) -> ByteSize {
        ByteSize(self.sidecar.bytes)
    }

    /// The labels of the image's configuration.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.sidecar.labels
    }

    /// The time when the tree was last published, unpublished or touched.
    pub fn last_used(&self) -> SystemTime {
        self.last_used
    }

    /// The directory with all that the image has in `/data`, as this process sees it.
    pub fn data_dir(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The model's directory, as this process sees it.
    pub fn model_dir(&self) -> PathBuf {
        self.path.join(&self.sidecar.model)
    }

    /// The model's directory, relative to the tree's directory.
    pub fn model(&self) -> &Path {
        Path::new(&self.sidecar.model)
    }

    /// The bytes of `metadata.json`.
    pub fn metadata_bytes(&self) -> Result<Vec<u8>> {
        self.read(&self.sidecar.metadata, MAX_METADATA)
    }

    /// The size of `metadata.json` in bytes.
    pub fn metadata_size(&self) -> u64 {
        self.size_of(&self.sidecar.metadata)
    }

    /// The size of `profile.json` in bytes; 0 if there is none.
    pub fn profile_size(&self) -> u64 {
        self.sidecar.profile.as_ref().map_or(0, |profile| self.size_of(profile))
    }

    fn size_of(&self, part: &str) -> u64 {
        std::fs::metadata(self.path.join(part)).map_or(0, |metadata| metadata.len())
    }

    /// The size of the largest part of the package that is read into memory as a whole, in bytes. A
    /// golden case has at most `golden_case` bytes.
    pub fn largest_part(&self, golden_case: u64) -> u64 {
        let golden = self.sidecar.golden.as_ref().map_or(0, |golden| self.size_of(golden));
        self.metadata_size().max(self.profile_size()).max(golden.min(golden_case))
    }

    /// The path of `golden.jsonl`, if there is one.
    pub fn golden(&self) -> Option<PathBuf> {
        self.sidecar.golden.as_ref().map(|golden| self.path.join(golden))
    }

    /// The bytes of `profile.json`, if there is one.
    pub fn profile_bytes(&self) -> Result<Option<Vec<u8>>> {
        self.sidecar.profile.as_ref().map(|profile| self.read(profile, MAX_PROFILE)).transpose()
    }

    /// The content stored by [`Store::keep_signatures`], if it can be read.
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
    /// Writes the sidecar into the directory `tree`, which still has a temporary name.
    pub(crate) fn write(&self, tree: &Path) -> Result<()> {
        let content = serde_json::to_vec_pretty(self).expect("text and numbers only");
        disk::write_new(&tree.join(SIDECAR), &content)
    }
}

/// Opens the tree of `image`; `None` if it is missing or its sidecar cannot be read.
pub(crate) fn open(layout: &Layout, image: &Digest) -> Option<Tree> {
    let path = layout.tree(image);
    let file = path.join(SIDECAR);
    let metadata = file.metadata().ok()?;
    let (last_used, identity) = (metadata.modified().ok()?, (metadata.ino(), metadata.len()));
    if let Some(sidecar) = layout.sidecars.get(image, identity) {
        return Some(Tree { path, last_used, sidecar });
    }
    let content = disk::read(&file, MAX_SIDECAR).ok().flatten()?;
    match serde_json::from_slice::<Sidecar>(&content) {
        Ok(sidecar) if sidecar.digest == *image => {
            let sidecar = Arc::new(sidecar);
            layout.sidecars.all().insert(*image, (identity, Arc::clone(&sidecar)));
            Some(Tree { path, last_used, sidecar })
        }
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(path = %file.display(), %error, "the sidecar of a tree cannot be read");
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

/// Removes entries of `trees/` that are not valid trees: they could be neither used nor counted.
pub(crate) fn remove_unreadable(layout: &Layout) -> Result<()> {
    for path in disk::list(&layout.trees())? {
        if open_at(layout, &path).is_none() {
            tracing::warn!(path = %path.display(), "removing an entry that is not a valid tree");
            disk::remove_tree(&path)?;
        }
    }
    Ok(())
}
