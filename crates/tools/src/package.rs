//! Packs, pushes and pulls packages: `outrigger push`, `pull`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
};

use outrigger_core::{Digest, Failure, Reason};
use outrigger_oci::{Client, ImageToPush, Progress, Reference, build};
use outrigger_run::{Framework, layouts};

use crate::{
    Error,
    fetch::{self, Source, blocking},
};

/// Packs `directory`, which mirrors `/data` and holds a model of one of `frameworks`, and pushes
/// it. The same files and labels give the same digest.
pub async fn push(
    client: &Client,
    directory: &Path,
    reference: &Reference,
    labels: BTreeMap<String, String>,
    frameworks: &[Framework],
) -> Result<Digest, Error> {
    let image = pack(directory, labels, frameworks).await?;
    Ok(client.push(reference, &image).await.map_err(|error| error.failure())?)
}

/// Packs `directory` into layers.
pub(crate) async fn pack(
    directory: &Path,
    labels: BTreeMap<String, String>,
    frameworks: &[Framework],
) -> Result<ImageToPush, Error> {
    let (directory, layouts) = (directory.to_owned(), layouts(frameworks));
    let build = move || {
        build::image_from_dir(&directory, labels, &layouts)
            .map_err(|error| Failure::because(error.reason(), &error))
    };
    blocking(build).await
}

/// Pulls an image and writes its package to `directory`, which must not exist yet and can
/// be pushed again. Returns the image's digest.
pub async fn pull(
    client: &Client,
    reference: &Reference,
    directory: &Path,
    frameworks: &[Framework],
    progress: &Progress,
) -> Result<Digest, Error> {
    if directory.exists() {
        return Err(Error::Usage(format!("{} already exists", directory.display())));
    }
    let fetched =
        fetch::fetch(client, &Source::Image(reference.clone()), frameworks, progress).await?;
    let (tree, directory) = (fetched.tree.clone(), directory.to_owned());
    blocking(move || write(&tree, &directory)).await?;
    Ok(fetched.image.digest)
}

/// Writes a tree to a temporary directory beside the target, then renames it.
fn write(tree: &outrigger_store::Tree, directory: &Path) -> Result<(), Failure> {
    let io = |error: std::io::Error| {
        Failure::new(Reason::Internal, format!("{}: {error}", directory.display()))
    };
    let unreadable = |error: outrigger_store::Error| Failure::because(error.reason(), &error);
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let staging = tempfile::Builder::new().prefix(".outrigger-").tempdir_in(parent).map_err(io)?;
    // A subdirectory, because only the owner may read the temporary directory itself,
    // which is deleted on any error.
    let package = staging.path().join("package");
    fs::create_dir(&package).map_err(io)?;
    fs::write(package.join("metadata.json"), tree.metadata_bytes().map_err(unreadable)?)
        .map_err(io)?;
    if let Some(golden) = tree.golden() {
        let mut copy = File::create(package.join("golden.jsonl")).map_err(io)?;
        std::io::copy(&mut File::open(golden).map_err(io)?, &mut copy).map_err(io)?;
    }
    if let Some(profile) = tree.profile_bytes().map_err(unreadable)? {
        fs::write(package.join("profile.json"), profile).map_err(io)?;
    }
    copy(&tree.model_dir(), &package.join(unversioned(tree.model()))).map_err(io)?;
    fs::rename(package, directory).map_err(io)
}

/// The path of a model in its package, relative to `/data`, without the directory of a
/// version.
fn unversioned(model: &Path) -> &Path {
    let path = model.strip_prefix("data").unwrap_or(model);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_version = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    path.parent().filter(|_| is_version).unwrap_or(path)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if fs::metadata(entry.path())?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
