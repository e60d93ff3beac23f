//! Directories of numbered versions (`7/`, `8/`), from which versions are copied into the store.
//! Nothing in them is trusted.
//!
//! # The digest of a version
//! Each regular file of the version's directory, at any depth, is one line: the SHA-256 of its
//! content in lower-case hexadecimal digits, two spaces, its path relative to the version's
//! directory with `/` between the parts, and a line feed. The lines are sorted by path, byte by
//! byte. The digest is the SHA-256 of all lines. The same is computed by
//! `find -L . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum`.

mod walk;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use outrigger_core::Digest;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result, Store, UnpackLimits, VersionProblem, beneath, blobs::Hashing};

/// The largest number of a version, that of TensorFlow Serving's `int64`.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// A directory whose subdirectories with numbers as names are versions of one model.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    limits: UnpackLimits,
}

/// The files of one version, as they were when they were listed.
#[derive(Debug)]
pub struct Files {
    /// The version's directory, for messages.
    path: PathBuf,
    /// The directory of all versions, without symbolic links on its path.
    base: PathBuf,
    /// In the order of their names.
    files: Vec<Listed>,
}

/// A regular file of a version.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The path relative to the version's directory, with `/` between the parts.
    pub(crate) name: String,
    /// The path relative to the directory of all versions, without symbolic links.
    place: PathBuf,
    pub(crate) size: u64,
    /// The times of the last change of the content, which programs may set, and of anything, which
    /// the file system sets; in seconds since 1970, as text.
    changed: [String; 2],
}

impl Store {
    /// The directory of versions at `path`, with the store's limits for one version.
    pub fn directory(&self, path: &Path) -> Directory {
        Directory { path: path.to_owned(), limits: self.inner.limits }
    }
}

impl Directory {
    /// Its path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the subdirectories that are versions, by number. Other entries are ignored. If
    /// several names are the same number (`7`, `007`), the first in the order of names counts.
    ///
    /// # Errors
    /// [`Error::NoDirectory`], [`Error::Version`] if there are more entries than a version may
    /// have, or an error of the disk.
    pub fn versions(&self) -> Result<BTreeMap<u64, String>> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Error::NoDirectory(self.path.clone())
            }
            _ => Error::io("list", &self.path, error),
        };
        let mut versions = BTreeMap::<u64, String>::new();
        for (position, entry) in fs::read_dir(&self.path).map_err(failed)?.enumerate() {
            if position as u64 >= self.limits.max_entries {
                let problem = VersionProblem::TooManyEntries(self.limits.max_entries);
                return Err(Error::Version { path: self.path.clone(), problem });
            }
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().into_string().ok();
            let numbered = name.and_then(|name| Some((number(&name)?, name)));
            // Follows a link, which `files` checks.
            let Some((number, name)) = numbered.filter(|_| entry.path().is_dir()) else { continue };
            let first = versions.entry(number).or_insert_with(|| name.clone());
            if name < *first {
                *first = name;
            }
        }
        Ok(versions)
    }

    /// Lists the files of the version in the subdirectory `name`.
    ///
    /// # Errors
    /// [`Error::Version`] if the version is refused; [`Error::Changed`] if it changes meanwhile;
    /// otherwise an error of the disk.
    pub fn files(&self, name: &str) -> Result<Files> {
        let path = self.path.join(name);
        let base = fs::canonicalize(&self.path);
        let base = base.map_err(|error| Error::io("look at", &self.path, error))?;
        let mut files = walk::walk(&base, name, self.limits).map_err(|fault| fault.at(&path))?;
        files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(Files { path, base, files })
    }
}

/// The number that is the name of a version.
fn number(name: &str) -> Option<u64> {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let number = name.parse().ok().filter(|_| digits)?;
    (number <= MAX_NUMBER).then_some(number)
}

impl Files {
    /// The version's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A digest of the files' names, sizes and times of change. Their content is not read.
    pub fn fingerprint(&self) -> Digest {
        let mut hash = Sha256::new();
        for Listed { name, size, changed, .. } in &self.files {
            hash.update(format!("{size} {} {name}\n", changed.join(" ")));
        }
        Digest::from_sha256(hash.finalize().into())
    }

    /// Reads the files and computes the digest of their content.
    ///
    /// # Errors
    /// [`Error::Changed`] if they have changed since they were listed; otherwise an error of the
    /// disk.
    pub fn digest(&self) -> Result<Digest> {
        let mut content = Content::default();
        for file in &self.files {
            let digest = Hashing::new(self.open(file)?).finish();
            content.add(&file.name, digest.map_err(|error| self.failed(error))?);
        }
        Ok(content.finish())
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Listed> {
        self.files.iter()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Listed> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Opens a file, which must be as it was when it was listed.
    pub(crate) fn open(&self, file: &Listed) -> Result<File> {
        let changed = || Error::Changed(self.path.clone());
        let failed = |error| match error {
            error if beneath::is_absent(error) => changed(),
            error => self.failed(error.into()),
        };
        let (Some(parent), Some(last)) = (file.place.parent(), file.place.file_name()) else {
            return Err(changed());
        };
        let base = rustix::fs::open(&self.base, beneath::OPEN_DIR, rustix::fs::Mode::empty());
        let parts = parent.components().map(|part| part.as_os_str());
        let parent = beneath::directory(base.map_err(failed)?, parts).map_err(failed)?;
        let opened = beneath::file(&parent, last).map_err(failed)?;
        let metadata = opened.metadata().map_err(|error| self.failed(error))?;
        match metadata.is_file() && metadata.len() == file.size {
            true => Ok(opened),
            false => Err(changed()),
        }
    }

    /// Reads a file of at most `max` bytes into memory.
    pub(crate) fn read(&self, file: &Listed, max: ByteSize) -> Result<Vec<u8>> {
        if file.size > max.as_u64() {
            let problem = VersionProblem::FileTooLarge(file.name.clone(), max);
            return Err(self.refused(problem));
        }
        let mut content = Vec::new();
        let read = self.open(file)?.take(max.as_u64()).read_to_end(&mut content);
        read.map_err(|error| self.failed(error))?;
        Ok(content)
    }

    pub(crate) fn refused(&self, problem: VersionProblem) -> Error {
        Error::Version { path: self.path.clone(), problem }
    }

    pub(crate) fn failed(&self, error: io::Error) -> Error {
        Error::io("read", &self.path, error)
    }
}

/// Computes the digest of a version from those of its files, in the order of their names.
#[derive(Default)]
pub(crate) struct Content(Sha256);

impl Content {
    pub(crate) fn add(&mut self, name: &str, digest: Digest) {
        self.0.update(format!("{}  {name}\n", digest.hex()));
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::from_sha256(self.0.finalize().into())
    }
}

/// True if a name has a spelling of its own in the lines that the digest is computed from.
fn is_plain(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| !name.contains(|it: char| it.is_control() || it == '\\'))
}

#[cfg(test)]
mod tests;
