//! An image from anywhere, unpacked into a store of its own for one command.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use outrigger_core::Failure;
use outrigger_lifecycle::Pull;
use outrigger_oci::{Client, Image, Progress, Reference};
use outrigger_store::{Config, Store, Tree};

use crate::Error;

/// Layers fetched at the same time.
const CONCURRENCY: usize = 4;

/// What a command may be pointed at.
#[derive(Debug, Clone)]
pub enum Source {
    /// An image.
    Image(Reference),
    /// A directory that mirrors `/data`.
    Directory(PathBuf),
}

/// A package on this machine's disk, for as long as the value lives.
#[derive(Debug)]
pub struct Fetched {
    /// The image.
    pub image: Image,
    /// Its files.
    pub tree: Tree,
    /// The store that holds the tree.
    pub store: Store,
    _directory: tempfile::TempDir,
}

impl Source {
    /// What `text` means: a directory that exists, else a reference.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let path = Path::new(text);
        if path.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let reference = text.parse().map_err(|error| {
            Error::Usage(format!("{text:?} is neither a directory nor an image: {error}"))
        })?;
        Ok(Self::Image(reference))
    }
}

/// Pulls the image that `source` means, verifies it and unpacks it. A directory
/// is packed first, so that it passes the checks that its image will pass.
pub async fn fetch(
    client: &Client,
    source: &Source,
    progress: &Progress,
) -> Result<Fetched, Error> {
    let directory =
        tempfile::tempdir().map_err(|error| Error::io("a temporary directory", error))?;
    let reference = match source {
        Source::Image(reference) => reference.clone(),
        Source::Directory(path) => pack(client, path, directory.path()).await?,
    };
    let store = open_store(directory.path().join("store")).await?;
    let image = client.image(&reference).await.map_err(|error| error.failure())?;
    let in_use = Arc::new(|_: &_| true);
    let pull = Pull { client, store: &store, in_use, concurrency: CONCURRENCY, progress };
    let tree = pull.tree(&image).await?;
    Ok(Fetched { image, tree, store, _directory: directory })
}

/// Packs a directory into a layout under `scratch`.
async fn pack(client: &Client, path: &Path, scratch: &Path) -> Result<Reference, Error> {
    let layout = format!("oci:{}:packed", scratch.join("layout").display());
    let reference: Reference = layout.parse().map_err(|error| Error::Usage(format!("{error}")))?;
    let image = crate::package::pack(path, BTreeMap::new()).await?;
    client.push(&reference, &image).await.map_err(|error| error.failure())?;
    Ok(reference)
}

async fn open_store(path: PathBuf) -> Result<Store, Error> {
    blocking(move || {
        Store::open(Config::new(path)).map_err(|error| Failure::because(error.reason(), &error))
    })
    .await
}

/// Runs what waits for the disk where that is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
