//! Copies a version of a directory to a tree.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
};

use outrigger_core::{Digest, PackageLayout};

use super::{
    Package, Staging,
    name::Place,
    root::{Fault, Root},
    seal::{self, Links},
    writer::Room,
};
use crate::{
    Error, Files, InUse, Reservation, Result, Store, Tree, VersionProblem,
    blobs::Hashing,
    directory::{Content, Listed},
    tree::MAX_METADATA,
};

/// The files of a package that are not part of its model.
const BESIDE: [&str; 3] = ["metadata.json", "golden.jsonl", "profile.json"];

impl Store {
    /// Copies the files of a version, whose content has the digest `digest`, to the tree of that
    /// digest. Concurrent calls for the same digest wait and return the same tree. A failure leaves
    /// nothing behind.
    ///
    /// The version is a package that mirrors an image's `/data`, or the content of its model's
    /// directory with metadata.json, golden.jsonl and profile.json beside the model's files.
    ///
    /// # Errors
    /// [`Error::Version`] and [`Error::Package`] if the version is at fault; [`Error::Changed`] if
    /// its content has another digest by now; [`Error::Full`] and [`Error::NoSpace`] if the tree
    /// does not fit.
    pub fn take(
        &self,
        files: &Files,
        digest: Digest,
        labels: BTreeMap<String, String>,
        in_use: InUse<'_>,
    ) -> Result<Tree> {
        self.once(digest, || self.take_new(files, digest, labels, in_use))
    }

    fn take_new(
        &self,
        files: &Files,
        digest: Digest,
        labels: BTreeMap<String, String>,
        in_use: InUse<'_>,
    ) -> Result<Tree> {
        let layout = self.layout_of(files)?;
        let reservation = Reservation::for_tree(&self.inner, digest, &[]);
        let staging = Staging::make(&self.inner.layout.trees())?;
        let root = Root::open(staging.0.clone())?;
        let room = Room { reservation: &reservation, in_use };
        let mut content = Content::default();
        for file in files.iter() {
            let place = match layout {
                Some(layout) if !BESIDE.contains(&&*file.name) => {
                    format!("data/{}/{}", layout.directory, file.name)
                }
                _ => format!("data/{}", file.name),
            };
            content.add(&file.name, copy(files, file, &place, (&root, &room))?);
            room.entries(root.take_implied())?;
        }
        if content.finish() != digest {
            return Err(Error::Changed(files.path().to_owned()));
        }
        let sealed = seal::seal(&staging.0, digest, &Links::new(), &self.inner.layouts)?;
        let package = Package { digest, platform_digest: digest, labels, layers: Vec::new() };
        self.keep(&staging, package, sealed)
    }

    /// The layout whose model's directory is the version itself; `None` if the version mirrors an
    /// image's `/data`.
    fn layout_of(&self, files: &Files) -> Result<Option<PackageLayout>> {
        let layouts = &self.inner.layouts;
        let places = layouts.metadata();
        let metadata = places.iter().find_map(|place| files.find(place));
        let metadata = metadata.ok_or_else(|| undescribed(files))?;
        let layouts = layouts.of(&files.read(metadata, MAX_METADATA)?)?;
        let mirrors = |layout: &PackageLayout| {
            let directory = format!("{}/", layout.directory);
            files.iter().any(|file| file.name.starts_with(&directory))
        };
        if metadata.name != "metadata.json" || layouts.iter().any(mirrors) {
            return Ok(None);
        }
        let holds = |layout: &PackageLayout| layout.files.iter().any(|it| files.find(it).is_some());
        Ok(layouts.into_iter().find(holds))
    }
}

/// The refusal of a version without metadata.json. This is the place to derive a description from
/// the files of XGBoost Serving (`deploy.model`, `deploy.fm`, `deploy.leaf_mapping`), whose features
/// are sparse ids: no framework takes those yet.
fn undescribed(files: &Files) -> Error {
    let hint = match files.find("deploy.model") {
        Some(_) => ": the files of XGBoost Serving are served only with one",
        None => "",
    };
    files.refused(VersionProblem::NoMetadata(hint))
}

/// Copies a file to `place` below the root, and returns the digest of its content.
fn copy(
    files: &Files,
    file: &Listed,
    place: &str,
    (root, room): (&Root, &Room<'_>),
) -> Result<Digest> {
    let place = Place::parse(place.as_bytes()).map_err(Fault::from);
    let made = place.and_then(|place| Ok((root.make_file(&place)?, place.path())));
    let (to, path) = made.map_err(|fault| match fault {
        Fault::Failed(error) => error,
        Fault::Entry(problem) => files.refused(VersionProblem::Path(file.name.clone(), problem)),
    })?;
    let mut from = Hashing::new(files.open(file)?.take(file.size));
    let read = |buffer: &mut [u8]| uninterrupted(&mut from, buffer).map_err(|it| files.failed(it));
    room.copy(read, file.size, to, &path)?;
    from.finish().map_err(|error| files.failed(error))
}

fn uninterrupted(from: &mut Hashing<io::Take<File>>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
