//! Packs, pushes and pulls packages: `outrigger push`, `pull`.

use std::{collections::BTreeMap, fs, path::Path};

use outrigger_core::{Digest, Failure, Layouts, Reason, printable};
use outrigger_oci::{
    Client, ImageToPush, Progress, Reference,
    build::{self, BuildError, Origin},
};
use outrigger_run::{Framework, layouts, remarks};

use crate::{
    Error,
    fetch::{self, Fetched, Source, blocking},
};

/// Packs `directory`, which mirrors `/data` and holds a model of one of `frameworks`, and pushes
/// it. The same files and labels give the same digest. A directory that was pulled and not changed is
/// pushed as the image that it was, if that image can still be read.
pub async fn push(
    client: &Client,
    directory: &Path,
    reference: &Reference,
    labels: BTreeMap<String, String>,
    frameworks: &[Framework],
) -> Result<Digest, Error> {
    let packed = pack(directory, labels, frameworks).await?;
    for remark in remarks(frameworks, directory) {
        eprintln!("outrigger: {}", printable(remark));
    }
    let original = original(client, directory, packed.digest()).await?;
    let image = original.unwrap_or(packed);
    Ok(client.push(reference, &image).await.map_err(|error| error.failure())?)
}

/// The image that a directory was pulled from, if the directory's digest says that nothing was
/// changed, and packing gives another image than that.
async fn original(
    client: &Client,
    directory: &Path,
    packed: Digest,
) -> Result<Option<ImageToPush>, Error> {
    let directory = directory.to_owned();
    let read = move || Origin::read(&directory).map_err(unbuilt);
    let unchanged =
        |origin: &Origin| origin.packed == Some(packed) && origin.image.digest() != Some(packed);
    let Some(origin) = blocking(read).await?.filter(unchanged) else { return Ok(None) };
    match client.download(&origin.image).await {
        Ok(image) => Ok(Some(image)),
        Err(error) => {
            let image = &origin.image;
            let error = error.failure();
            eprintln!("outrigger: packed anew, because {image} cannot be read: {error}");
            Ok(None)
        }
    }
}

fn unbuilt(error: BuildError) -> Failure {
    Failure::because(error.reason(), &error)
}

/// Packs `directory` into layers.
pub(crate) async fn pack(
    directory: &Path,
    labels: BTreeMap<String, String>,
    frameworks: &[Framework],
) -> Result<ImageToPush, Error> {
    let (directory, layouts) = (directory.to_owned(), layouts(frameworks));
    let build = move || build::image_from_dir(&directory, labels, &layouts).map_err(unbuilt);
    blocking(build).await
}

/// Pulls an image and writes what it has in `/data` to `directory`, which must not exist yet and can
/// be pushed again, with a note of the image's labels. Returns the image's digest.
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
    let digest = fetched.image.digest;
    let directory = directory.to_owned();
    let layouts = layouts(frameworks);
    blocking(move || write(&fetched, &directory, &layouts)).await?;
    Ok(digest)
}

/// Writes an image's files to a temporary directory beside the target, then renames it.
fn write(fetched: &Fetched, directory: &Path, layouts: &Layouts) -> Result<(), Failure> {
    let io = |error: std::io::Error| {
        Failure::new(Reason::Internal, format!("{}: {error}", directory.display()))
    };
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let staging = tempfile::Builder::new().prefix(".outrigger-").tempdir_in(parent).map_err(io)?;
    // A subdirectory, because only the owner may read the temporary directory itself,
    // which is deleted on any error.
    let package = staging.path().join("package");
    let data = fetched.tree.data_dir();
    let model = fs::canonicalize(fetched.tree.model_dir()).map_err(io)?;
    copy(&data, &package).map_err(io)?;
    for layout in layouts.all() {
        // The model's directory may be a link to another one.
        let linked = fs::canonicalize(data.join(layout.directory)).ok();
        let held = package.join(layout.directory);
        if let Some(target) = linked.filter(|target| model.starts_with(target) && !held.exists()) {
            copy(&target, &held).map_err(io)?;
        }
    }
    let mut origin = Origin::of(&fetched.image);
    origin.write(&package).map_err(unbuilt)?;
    let packed = build::image_from_dir(&package, BTreeMap::new(), layouts).map_err(unbuilt)?;
    origin.packed = Some(packed.digest());
    origin.write(&package).map_err(unbuilt)?;
    fs::rename(package, directory).map_err(io)
}

/// Copies files, those behind links too, and directories. Links to directories are left out: they
/// could lead in a circle.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if fs::metadata(entry.path())?.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
