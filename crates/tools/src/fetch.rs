//! Fetches an image and unpacks it into a temporary store for one command.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use outrigger_core::Failure;
use outrigger_lifecycle::Pull;
use outrigger_oci::{Client, Image, Progress, Reference};
use outrigger_run::{Framework, layouts};
use outrigger_store::{Config, Store, Tree};

use crate::Error;

/// Layers that are fetched concurrently.
const CONCURRENCY: usize = 4;

/// The source of a package.
#[derive(Debug, Clone)]
pub enum Source {
    /// An image.
    Image(Reference),
    /// A directory that mirrors `/data`.
    Directory(PathBuf),
}

/// A package on this machine's disk; dropping the value deletes it.
#[derive(Debug)]
pub struct Fetched {
    /// The image.
    pub image: Image,
    /// The image's unpacked files.
    pub tree: Tree,
    /// The store that holds the tree.
    pub store: Store,
    _directory: tempfile::TempDir,
}

impl Source {
    /// Parses `text`: a directory that exists, else an image reference.
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

/// Pulls the image of `source`, verifies it and unpacks it. A directory is packed first,
/// so that it passes the same checks as its image. The model is one of `frameworks`.
pub async fn fetch(
    client: &Client,
    source: &Source,
    frameworks: &[Framework],
    progress: &Progress,
) -> Result<Fetched, Error> {
    let directory =
        tempfile::tempdir().map_err(|error| Error::io("a temporary directory", error))?;
    let reference = match source {
        Source::Image(reference) => reference.clone(),
        Source::Directory(path) => pack(client, path, directory.path(), frameworks).await?,
    };
    let store = open_store(directory.path().join("store"), frameworks).await?;
    let image = client.image(&reference).await.map_err(|error| error.failure())?;
    let in_use = Arc::new(|_: &_| true);
    let pull = Pull {
        client,
        store: &store,
        in_use,
        memory: None,
        concurrency: CONCURRENCY,
        progress,
        turn: None,
    };
    let tree = pull.tree(&image).await?;
    Ok(Fetched { image, tree, store, _directory: directory })
}

/// Packs a directory into an image layout under `scratch`.
async fn pack(
    client: &Client,
    path: &Path,
    scratch: &Path,
    frameworks: &[Framework],
) -> Result<Reference, Error> {
    let layout = format!("oci:{}:packed", scratch.join("layout").display());
    let reference: Reference = layout.parse().map_err(|error| Error::Usage(format!("{error}")))?;
    let image = crate::package::pack(path, BTreeMap::new(), frameworks).await?;
    client.push(&reference, &image).await.map_err(|error| error.failure())?;
    Ok(reference)
}

async fn open_store(path: PathBuf, frameworks: &[Framework]) -> Result<Store, Error> {
    let layouts = layouts(frameworks);
    blocking(move || {
        let config = Config { layouts, ..Config::new(path) };
        Store::open(config).map_err(|error| Failure::because(error.reason(), &error))
    })
    .await
}

/// Runs disk I/O on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
