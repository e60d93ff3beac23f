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
mod scan;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use outrigger_core::{Digest, LayerKind, PackageLayout, Reason};
use serde::Serialize;

use crate::{Content, ImageToPush, LayerToPush};
use archive::Packed;
use scan::Entry;

/// Files of this many bytes or more get a layer of their own.
pub const OWN_LAYER: u64 = 4 << 20;

/// The reason why a directory cannot be packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// metadata.json is missing from every place where a package may have it.
    #[error("{} is no model package: it has no metadata.json", directory.display())]
    NoMetadata {
        /// The directory.
        directory: PathBuf,
    },
    /// The model's directory is missing.
    #[error("{} is no model package: it has no directory {known}", directory.display())]
    NoModel {
        /// The directory.
        directory: PathBuf,
        /// The directories that hold the models of the known frameworks.
        known: String,
    },
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
            _ => Reason::ImageInvalid,
        }
    }

    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Packs `directory`, which mirrors `/data` in the image: metadata.json, optionally golden.jsonl,
/// and a model of one of the `layouts`. `labels` become labels of the image's configuration and
/// annotations of the manifest.
///
/// Layers are written to temporary files, which are removed with the returned image. This function
/// blocks.
pub fn image_from_dir(
    directory: &Path,
    layouts: &[PackageLayout],
    labels: BTreeMap<String, String>,
) -> Result<ImageToPush, BuildError> {
    let entries = scan::scan(directory)?;
    check(directory, layouts, &entries)?;
    let work = tempfile::tempdir().map_err(BuildError::io(std::env::temp_dir()))?;
    let (large, small): (Vec<_>, Vec<_>) = entries.into_iter().partition(Entry::is_large);
    let mut packed = vec![archive::pack(work.path(), LayerKind::TarGzip, &small)?];
    for entry in large {
        packed.push(archive::pack(work.path(), LayerKind::Tar, &[entry])?);
    }
    let config = config(&labels, &packed);
    let keep = Arc::new(work);
    let layers = packed.into_iter().map(|packed| {
        let content = Content::File { path: packed.path, keep: Some(Arc::clone(&keep)) };
        LayerToPush { layer: packed.layer, content }
    });
    Ok(ImageToPush { layers: layers.collect(), config, annotations: labels })
}

fn check(directory: &Path, layouts: &[PackageLayout], entries: &[Entry]) -> Result<(), BuildError> {
    let has = |name: &str, file: bool| {
        entries.iter().any(|entry| entry.name == name && entry.is_file() == file)
    };
    let directory = directory.to_owned();
    let beside = layouts.iter().filter_map(|layout| layout.directory.rsplit_once('/'));
    let mut beside = beside.map(|(parent, _)| format!("{parent}/metadata.json"));
    if !has("metadata.json", true) && !beside.any(|name| has(&name, true)) {
        return Err(BuildError::NoMetadata { directory });
    }
    let known: Vec<_> = layouts.iter().map(|layout| layout.directory).collect();
    if !known.iter().any(|name| has(name, false)) {
        return Err(BuildError::NoModel { directory, known: known.join(" or ") });
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
