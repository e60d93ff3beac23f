//! Copies a version of a directory to a tree.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use outrigger_core::{Describer, Digest, PackageLayout};

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

const METADATA: &str = "metadata.json";

/// The form of a version.
struct Form {
    /// The layout whose model's directory is the version itself; `None` if the version mirrors an
    /// image's `/data`.
    layout: Option<PackageLayout>,
    /// The way to describe the model of a version without metadata.json.
    describer: Option<Describer>,
}

impl Store {
    /// Copies the files of a version, whose content has the digest `digest`, to the tree of that
    /// digest. Concurrent calls for the same digest wait and return the same tree. A failure leaves
    /// nothing behind.
    ///
    /// The version is a package that mirrors an image's `/data`, or the content of its model's
    /// directory with metadata.json, golden.jsonl and profile.json beside the model's files. Without
    /// metadata.json, the framework of the files describes the model, if it can; the description is
    /// not part of the content that has the digest.
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

    /// True if [`Self::take`] describes the model of a version, which takes up to
    /// [`Describer::MEMORY`].
    pub fn describes(&self, files: &Files) -> bool {
        self.metadata_of(files).is_none()
    }

    fn metadata_of<'f>(&self, files: &'f Files) -> Option<&'f Listed> {
        let places = self.inner.layouts.metadata();
        places.iter().find_map(|place| files.find(place))
    }

    fn take_new(
        &self,
        files: &Files,
        digest: Digest,
        labels: BTreeMap<String, String>,
        in_use: InUse<'_>,
    ) -> Result<Tree> {
        let form = self.form_of(files)?;
        let reservation = Reservation::for_tree(&self.inner, digest, &[]);
        let staging = Staging::make(&self.inner.layout.trees())?;
        let root = Root::open(staging.0.clone())?;
        let room = Room { reservation: &reservation, in_use };
        let mut content = Content::default();
        for file in files.iter() {
            let place = form.layout.map_or_else(|| file.name.clone(), |it| it.place(&file.name));
            let place = format!("data/{place}");
            content.add(&file.name, copy(files, file, &place, (&root, &room))?);
            room.entries(root.take_implied())?;
        }
        if content.finish() != digest {
            return Err(Error::Changed(files.path().to_owned()));
        }
        if let Form { layout: Some(layout), describer: Some(describer) } = form {
            let model = staging.0.join("data").join(layout.directory);
            describe(files, describer, &model, (&root, &room))?;
        }
        let sealed = seal::seal(&staging.0, digest, &Links::new(), &self.inner.layouts)?;
        let package = Package { digest, platform_digest: digest, labels, layers: Vec::new() };
        self.keep(&staging, package, sealed)
    }

    fn form_of(&self, files: &Files) -> Result<Form> {
        let layouts = &self.inner.layouts;
        let Some(metadata) = self.metadata_of(files) else {
            let found = layouts.describer(|name| files.find(name).is_some());
            let (layout, describer) =
                found.ok_or_else(|| files.refused(VersionProblem::NoMetadata))?;
            return Ok(Form { layout: Some(layout), describer: Some(describer) });
        };
        let names = files.iter().map(|file| &*file.name);
        let layout = layouts.beside(&files.read(metadata, MAX_METADATA)?, names)?;
        Ok(Form { layout: layout.filter(|_| metadata.name == METADATA), describer: None })
    }
}

/// Writes metadata.json for the model in the directory `model`.
fn describe(
    files: &Files,
    describer: Describer,
    model: &Path,
    (root, room): (&Root, &Room<'_>),
) -> Result<()> {
    let text = (describer.describe)(model)
        .map_err(|failure| files.refused(VersionProblem::NotDescribed(failure.message)))?;
    let place = format!("data/{METADATA}");
    let (to, path) = make(files, METADATA, &place, root)?;
    let mut from = text.as_bytes();
    let read = |buffer: &mut [u8]| from.read(buffer).map_err(|error| files.failed(error));
    room.copy(read, text.len() as u64, to, &path)
}

/// Copies a file to `place` below the root, and returns the digest of its content.
fn copy(
    files: &Files,
    file: &Listed,
    place: &str,
    (root, room): (&Root, &Room<'_>),
) -> Result<Digest> {
    let (to, path) = make(files, &file.name, place, root)?;
    let mut from = Hashing::new(files.open(file)?.take(file.size));
    let read = |buffer: &mut [u8]| uninterrupted(&mut from, buffer).map_err(|it| files.failed(it));
    room.copy(read, file.size, to, &path)?;
    from.finish().map_err(|error| files.failed(error))
}

/// Makes a file at `place` below the root, for the file of the version called `name`.
fn make(files: &Files, name: &str, place: &str, root: &Root) -> Result<(File, PathBuf)> {
    let place = Place::parse(place.as_bytes()).map_err(Fault::from);
    let made = place.and_then(|place| Ok((root.make_file(&place)?, place.path())));
    made.map_err(|fault| match fault {
        Fault::Failed(error) => error,
        Fault::Entry(problem) => files.refused(VersionProblem::Path(name.to_owned(), problem)),
    })
}

fn uninterrupted(from: &mut Hashing<io::Take<File>>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
