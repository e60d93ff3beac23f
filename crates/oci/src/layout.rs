//! OCI image layout directories: `oci-layout`, `index.json`, `blobs/`.

mod beneath;
mod prune;

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use outrigger_core::{Digest, Selector, Tag};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::{
    Error, Repository,
    manifest::{self},
    partial::Partial,
    push::{Content, ImageToPush},
    source::{Stored, not_found, verified},
};

const BLOBS: &str = "blobs/sha256";
const INDEX: &str = "index.json";
const TAG: &str = "org.opencontainers.image.ref.name";
const PIECE: usize = 1 << 20;

/// A layout directory. All methods block.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    directory: PathBuf,
    /// The size limit of manifests and of `index.json`, bytes.
    limit: u64,
}

impl Layout {
    pub(crate) fn new(directory: &Path, limit: u64) -> Self {
        Self { directory: directory.to_owned(), limit }
    }

    fn repository(&self) -> Repository {
        Repository::Layout(self.directory.clone())
    }

    fn index_path(&self) -> PathBuf {
        self.directory.join(INDEX)
    }

    /// A blob's path, relative to the directory.
    fn blob(digest: Digest) -> PathBuf {
        Path::new(BLOBS).join(digest.hex())
    }

    pub(crate) fn resolve(&self, selector: &Selector) -> Result<Digest, Error> {
        match selector {
            Selector::Digest(digest) => self.manifest(selector).map(|_| *digest),
            Selector::Tag(tag) => {
                let what = self.index_path().display().to_string();
                let missing = || not_found(&self.repository(), selector);
                let index = self.index()?.ok_or_else(|| self.missing())?;
                let entry = entries(&index).iter().find(|entry| has_tag(entry, tag));
                let digest = entry.ok_or_else(missing)?["digest"].as_str().unwrap_or_default();
                digest.parse().map_err(|error| Error::invalid(what, format!("{error}")))
            }
        }
    }

    /// Reads a manifest. A digest need not be in the index: the manifest stays after its tag has
    /// moved.
    pub(crate) fn manifest(&self, selector: &Selector) -> Result<Stored, Error> {
        let digest = match selector {
            Selector::Digest(digest) => *digest,
            Selector::Tag(_) => self.resolve(selector)?,
        };
        let what = format!("the manifest of {}{selector}", self.repository());
        self.small_blob(digest, &what, self.limit)
    }

    pub(crate) fn small_blob(
        &self,
        digest: Digest,
        what: &str,
        limit: u64,
    ) -> Result<Stored, Error> {
        let body = self.read_bounded(&Self::blob(digest), what, limit)?;
        let body = body.ok_or_else(|| self.no_blob(digest))?;
        verified(&self.repository(), &Selector::Digest(digest), body, None)
    }

    /// Copies a blob and verifies it. It is copied rather than linked, because later changes in the
    /// layout directory must not reach the copy.
    pub(crate) fn copy(&self, digest: Digest, mut to: Partial) -> Result<(), Error> {
        to.restart()?;
        match self.copy_into(digest, &mut to) {
            Ok(()) => Ok(()),
            Err(error) => {
                to.remove();
                Err(error)
            }
        }
    }

    fn copy_into(&self, digest: Digest, to: &mut Partial) -> Result<(), Error> {
        let relative = Self::blob(digest);
        let path = self.directory.join(&relative);
        let blob = beneath::open(&self.directory, &relative)?;
        let mut blob = blob.ok_or_else(|| self.no_blob(digest))?;
        let mut piece = vec![0; PIECE];
        loop {
            match blob.read(&mut piece).map_err(Error::io(&path))? {
                0 => break,
                read => to.write(&piece[..read])?,
            }
        }
        if !to.is_complete() {
            return Err(to.wrong_size(to.position()));
        }
        to.finish()
    }

    pub(crate) fn push(&self, selector: &Selector, image: &ImageToPush) -> Result<(), Error> {
        self.create()?;
        for (digest, _, content) in image.blobs() {
            self.put_blob(digest, &content)?;
        }
        let manifest = image.manifest();
        let digest = Digest::of(&manifest);
        self.put_blob(digest, &Content::Bytes(manifest))?;
        match selector {
            Selector::Tag(tag) => self.tag(digest, tag),
            Selector::Digest(_) => Ok(()),
        }
    }

    /// Points `tag` at a manifest of this layout.
    pub(crate) fn tag(&self, digest: Digest, tag: &Tag) -> Result<(), Error> {
        let stored = self.manifest(&Selector::Digest(digest))?;
        let what = format!("{}@{digest}", self.repository());
        let parsed = manifest::parse(&what, &stored.body, None)?;
        let entry = json!({
            "mediaType": manifest::media_type(&parsed),
            "digest": digest.to_string(),
            "size": stored.body.len(),
            "annotations": { TAG: tag.as_str() },
        });
        let _lock = self.lock()?;
        let mut index = self.index()?.unwrap_or_else(empty_index);
        let entries = index.get_mut("manifests").and_then(Value::as_array_mut);
        let Some(entries) = entries else {
            return Err(Error::invalid(self.index_path().display().to_string(), "no manifests"));
        };
        entries.retain(|entry| !has_tag(entry, tag));
        entries.push(entry);
        let text = serde_json::to_vec_pretty(&index).expect("JSON is JSON");
        self.write(&self.index_path(), &Content::Bytes(text.into()))
    }

    fn create(&self) -> Result<(), Error> {
        // A link on the path is an error, before anything is created behind it.
        beneath::directory(&self.directory, Path::new(BLOBS))?;
        let blobs = self.directory.join(BLOBS);
        fs::create_dir_all(&blobs).map_err(Error::io(&blobs))?;
        let marker = self.directory.join("oci-layout");
        if !marker.exists() {
            let text = Bytes::from_static(br#"{"imageLayoutVersion":"1.0.0"}"#);
            self.write(&marker, &Content::Bytes(text))?;
        }
        Ok(())
    }

    /// Locks the directory while the index changes. The lock ends when the returned file is
    /// dropped.
    fn lock(&self) -> Result<File, Error> {
        let directory = File::open(&self.directory).map_err(Error::io(&self.directory))?;
        directory.lock().map_err(Error::io(&self.directory))?;
        Ok(directory)
    }

    pub(crate) fn put_blob(&self, digest: Digest, content: &Content) -> Result<(), Error> {
        let path = self.directory.join(Self::blob(digest));
        if path.exists() { Ok(()) } else { self.write(&path, content) }
    }

    /// Writes a file atomically.
    fn write(&self, path: &Path, content: &Content) -> Result<(), Error> {
        let parent = path.parent().expect("it lies in the layout");
        let write = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(parent)?;
            match content {
                Content::Bytes(bytes) => file.write_all(bytes)?,
                Content::File { path, .. } => {
                    io::copy(&mut File::open(path)?, file.as_file_mut())?;
                }
            }
            readable(file.as_file())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            File::open(parent)?.sync_all()
        };
        write().map_err(Error::io(path))
    }

    fn index(&self) -> Result<Option<Value>, Error> {
        let what = self.index_path().display().to_string();
        let text = self.read_bounded(Path::new(INDEX), &what, self.limit)?;
        let Some(text) = text else { return Ok(None) };
        let parsed = serde_json::from_slice(&text);
        parsed.map(Some).map_err(|error| Error::invalid(what, format!("no index: {error}")))
    }

    fn read_bounded(&self, path: &Path, what: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some(file) = beneath::open(&self.directory, path)? else { return Ok(None) };
        let mut body = Vec::new();
        file.take(limit + 1)
            .read_to_end(&mut body)
            .map_err(Error::io(&self.directory.join(path)))?;
        if body.len() as u64 > limit {
            return Err(Error::TooLarge { what: what.to_owned(), limit });
        }
        Ok(Some(body))
    }

    fn missing(&self) -> Error {
        Error::RepositoryNotFound { repository: self.repository().to_string() }
    }

    fn no_blob(&self, digest: Digest) -> Error {
        if !self.index_path().exists() {
            return self.missing();
        }
        not_found(&self.repository(), &Selector::Digest(digest))
    }
}

fn empty_index() -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [],
    })
}

fn entries(index: &Value) -> &[Value] {
    index["manifests"].as_array().map_or(&[], Vec::as_slice)
}

fn has_tag(entry: &Value, tag: &Tag) -> bool {
    entry["annotations"][TAG].as_str() == Some(tag.as_str())
}

/// Makes a file readable for all: temporary files are private, and a layout is read by other users
/// too.
fn readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}
