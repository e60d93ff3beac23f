//! Packs a model's directory as an image, reproducibly.
//!
//! The same files and labels give the same digest on any machine: names are
//! sorted, times, owners and modes fixed. Files of [`OWN_LAYER`] bytes and more
//! get a layer each, so that versions of a model share the blobs that did not
//! change; such a layer holds nothing but the file and is not compressed:
//! trained weights hardly shrink, unpacking then costs a copy only, and the
//! blob does not depend on a compressor's version. The rest shares one layer,
//! packed with gzip, which every tool can read.

mod archive;
mod flat;
mod origin;
mod scan;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use outrigger_core::{Digest, LayerKind, Layouts, Reason, UnknownFramework};
use serde::Serialize;

use crate::{Content, ImageToPush, LayerToPush};
use archive::Packed;
pub use origin::Origin;
use scan::Entry;

/// Files of this many bytes or more get a layer of their own.
pub const OWN_LAYER: u64 = 4 << 20;

/// The reason why a directory cannot be packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// metadata.json is missing from both places where a package may have it.
    #[error("{} is no model package: it has no {}", directory.display(), places.join(" nor "))]
    NoMetadata {
        /// The directory.
        directory: PathBuf,
        /// The places where a package may have it.
        places: Vec<String>,
    },
    /// The model's directory is missing.
    #[error("{} is no model package: it has no directory {model}", directory.display())]
    NoModel {
        /// The directory.
        directory: PathBuf,
        /// The directory that holds a model of the framework.
        model: String,
    },
    /// The model has no metadata.json and cannot be described.
    #[error("{} has no metadata.json, and its model cannot be described: {problem}", directory.display())]
    NotDescribed {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        problem: String,
    },
    /// No known engine runs the model.
    #[error(transparent)]
    Framework(#[from] UnknownFramework),
    /// An entry that is neither a file nor a directory.
    #[error("{} is {kind}: a package holds files and directories only", path.display())]
    Unsupported {
        /// The entry's path.
        path: PathBuf,
        /// The kind of entry, such as a symbolic link.
        kind: &'static str,
    },
    /// An entry whose name is not UTF-8.
    #[error("{} has a name that is not UTF-8", path.display())]
    Name {
        /// The entry's path.
        path: PathBuf,
    },
    /// Reading the directory or writing a layer failed.
    #[error("{}", path.display())]
    Io {
        /// The file or directory that was read or written.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl BuildError {
    /// The stable reason for callers.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Io { .. } => Reason::Internal,
            Self::Framework(_) => Reason::EngineNotChosen,
            _ => Reason::ImageInvalid,
        }
    }

    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Packs `directory`, which mirrors `/data` in the image: metadata.json, optionally golden.jsonl,
/// and the model in the directory of its framework. The model's files may also lie beside
/// metadata.json, and where its framework describes them they need none. `labels` become labels of
/// the image's configuration and annotations of the manifest, beside those of the image that the
/// directory was pulled from.
///
/// Layers are written to temporary files, which are removed with the returned image. This function
/// blocks.
pub fn image_from_dir(
    directory: &Path,
    labels: BTreeMap<String, String>,
    layouts: &Layouts,
) -> Result<ImageToPush, BuildError> {
    let work = tempfile::tempdir().map_err(BuildError::io(std::env::temp_dir()))?;
    let entries = flat::placed(directory, scan::scan(directory)?, layouts, work.path())?;
    check(directory, &entries, layouts)?;
    let (large, small): (Vec<_>, Vec<_>) = entries.into_iter().partition(Entry::is_large);
    let mut packed = vec![archive::pack(work.path(), LayerKind::TarGzip, &small)?];
    for entry in large {
        packed.push(archive::pack(work.path(), LayerKind::Tar, &[entry])?);
    }
    let (mut all, mut annotations) = Origin::read(directory)?
        .map(|origin| (origin.labels, origin.annotations))
        .unwrap_or_default();
    all.extend(labels);
    annotations.extend(all.clone());
    let config = config(&all, &packed);
    let keep = Arc::new(work);
    let layers = packed.into_iter().map(|packed| {
        let content = Content::File { path: packed.path, keep: Some(Arc::clone(&keep)) };
        LayerToPush { layer: packed.layer, content }
    });
    Ok(ImageToPush { layers: layers.collect(), config, annotations, original: None })
}

/// Checks that the package has metadata.json, and the directory of a model of its framework.
fn check(directory: &Path, entries: &[Entry], layouts: &Layouts) -> Result<(), BuildError> {
    let has = |name: &str| entries.iter().any(|entry| entry.name == name && !entry.is_file());
    let places = layouts.metadata();
    let package = directory.to_owned();
    let Some(metadata) = flat::metadata(entries, &places) else {
        return Err(BuildError::NoMetadata { directory: package, places });
    };
    let content = metadata.read()?;
    let models: Vec<_> = layouts.of(&content)?.iter().map(|layout| layout.directory).collect();
    // A package whose model's directory is its own has no other.
    if !models.iter().any(|model| model.is_empty() || has(model)) {
        return Err(BuildError::NoModel { directory: package, model: models.join(" or ") });
    }
    Ok(())
}

/// The image's configuration. A model does not depend on a platform; a fixed one keeps the digest
/// equal on all machines.
fn config(labels: &BTreeMap<String, String>, layers: &[Packed]) -> Bytes {
    #[derive(Serialize)]
    struct Config<'a> {
        architecture: &'a str,
        os: &'a str,
        config: Inner<'a>,
        rootfs: RootFs,
    }
    #[derive(Serialize)]
    struct Inner<'a> {
        #[serde(rename = "Labels")]
        labels: &'a BTreeMap<String, String>,
    }
    #[derive(Serialize)]
    struct RootFs {
        r#type: &'static str,
        diff_ids: Vec<Digest>,
    }
    let diff_ids = layers.iter().map(|layer| layer.diff_id).collect();
    let config = Config {
        architecture: "amd64",
        os: "linux",
        config: Inner { labels },
        rootfs: RootFs { r#type: "layers", diff_ids },
    };
    serde_json::to_vec(&config).expect("strings are JSON").into()
}

#[cfg(test)]
mod tests;
