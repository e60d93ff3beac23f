//! Lists the files of a version, within limits.

use std::{
    ffi::OsStr,
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, Stat},
    io::Errno,
};

use super::{Listed, is_plain};
use crate::{
    Error, UnpackLimits, VersionProblem,
    beneath::{self, OPEN_DIR},
};

/// The longest path of a file in a version, in bytes.
const MAX_NAME: usize = 1024;
/// The most parts that the path of a file in a version may have.
const MAX_DEPTH: usize = 64;
/// The bytes of all paths of a version, which are kept in memory.
const MAX_NAMES: usize = 8 << 20;

/// The reason why the files of a version could not be listed.
pub(super) enum Fault {
    /// The version is refused.
    Refused(VersionProblem),
    /// Something was removed or replaced meanwhile.
    Changed,
    /// The file system failed.
    Failed(Errno),
}

impl From<VersionProblem> for Fault {
    fn from(problem: VersionProblem) -> Self {
        Self::Refused(problem)
    }
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        if beneath::is_absent(error) { Self::Changed } else { Self::Failed(error) }
    }
}

impl Fault {
    /// The error for the version at `path`.
    pub(super) fn at(self, path: &Path) -> Error {
        match self {
            Self::Refused(problem) => Error::Version { path: path.to_owned(), problem },
            Self::Changed => Error::Changed(path.to_owned()),
            Self::Failed(error) => Error::io("read", path, error.into()),
        }
    }
}

/// The state of listing one version.
struct Walk<'a> {
    /// The directory of all versions, without symbolic links on its path.
    base: &'a Path,
    limits: UnpackLimits,
    files: Vec<Listed>,
    entries: u64,
    bytes: u64,
    names: usize,
}

/// Lists the files of the version `name` in `base`, a path without symbolic links.
pub(super) fn walk(base: &Path, name: &str, limits: UnpackLimits) -> Result<Vec<Listed>, Fault> {
    let mut walk = Walk { base, limits, files: Vec::new(), entries: 0, bytes: 0, names: 0 };
    // The version may be a link to another directory in `base`.
    let place = walk.inside(Path::new(name), name)?;
    let root = rustix::fs::open(base, OPEN_DIR, Mode::empty())?;
    let parts = place.components().map(|part| part.as_os_str());
    let version = beneath::directory(root, parts)?;
    walk.directory(&version, &place, "")?;
    Ok(walk.files)
}

impl Walk<'_> {
    /// Lists the directory at `place` below the base, whose name in the version is `name`.
    fn directory(&mut self, dir: &OwnedFd, place: &Path, name: &str) -> Result<(), Fault> {
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let last = OsStr::from_bytes(entry.file_name().to_bytes());
            if last != "." && last != ".." {
                self.entry(dir, &place.join(last), &self.named(name, last)?)?;
            }
        }
        Ok(())
    }

    /// The name in the version of the entry `last` of its directory `parent`.
    fn named(&self, parent: &str, last: &OsStr) -> Result<String, Fault> {
        let Some(last) = last.to_str().filter(|_| is_plain(last)) else {
            return Err(VersionProblem::Name(last.to_string_lossy().into_owned()).into());
        };
        let name = if parent.is_empty() { last.to_owned() } else { format!("{parent}/{last}") };
        if name.split('/').count() > MAX_DEPTH {
            return Err(VersionProblem::TooDeep(MAX_DEPTH).into());
        }
        let fits = name.len() <= MAX_NAME;
        fits.then_some(name).ok_or_else(|| VersionProblem::NameTooLong(MAX_NAME).into())
    }

    fn entry(&mut self, dir: &OwnedFd, place: &Path, name: &str) -> Result<(), Fault> {
        self.entries += 1;
        self.names += name.len();
        if self.entries > self.limits.max_entries {
            return Err(VersionProblem::TooManyEntries(self.limits.max_entries).into());
        }
        if self.names > MAX_NAMES {
            return Err(VersionProblem::Names(ByteSize(MAX_NAMES as u64)).into());
        }
        let last = place.file_name().unwrap_or_default();
        let stat = rustix::fs::statat(dir, last, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(place.to_owned(), name, &stat),
            FileType::Directory => {
                let inner = rustix::fs::openat(dir, last, OPEN_DIR, Mode::empty())?;
                self.directory(&inner, place, name)
            }
            FileType::Symlink => self.link(place, name),
            _ => Err(VersionProblem::Kind(name.to_owned()).into()),
        }
    }

    /// Lists the file that a symbolic link leads to.
    fn link(&mut self, place: &Path, name: &str) -> Result<(), Fault> {
        let target = self.inside(place, name)?;
        let (Some(parent), Some(last)) = (target.parent(), target.file_name()) else {
            return Err(VersionProblem::LinkDirectory(name.to_owned()).into());
        };
        let root = rustix::fs::open(self.base, OPEN_DIR, Mode::empty())?;
        let parts = parent.components().map(|part| part.as_os_str());
        let parent = beneath::directory(root, parts)?;
        let stat = rustix::fs::statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(target, name, &stat),
            FileType::Directory => Err(VersionProblem::LinkDirectory(name.to_owned()).into()),
            FileType::Symlink => Err(Fault::Changed),
            _ => Err(VersionProblem::Kind(name.to_owned()).into()),
        }
    }

    /// The place that `place` leads to by symbolic links, relative to the base.
    fn inside(&self, place: &Path, name: &str) -> Result<PathBuf, Fault> {
        let failed = |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::LOOP) => {
                Fault::from(VersionProblem::LinkTarget(name.to_owned()))
            }
            Some(error) => Fault::from(error),
            None => Fault::Changed,
        };
        let target = fs::canonicalize(self.base.join(place)).map_err(failed)?;
        let inside = target.strip_prefix(self.base).map(Path::to_owned);
        inside.map_err(|_| VersionProblem::LinkOutside(name.to_owned()).into())
    }

    fn file(&mut self, place: PathBuf, name: &str, stat: &Stat) -> Result<(), Fault> {
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.max_bytes.as_u64() {
            return Err(VersionProblem::TooLarge(self.limits.max_bytes).into());
        }
        let times = [(stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)];
        let changed = times.map(|(seconds, nanoseconds)| format!("{seconds}.{nanoseconds:09}"));
        self.files.push(Listed { name: name.to_owned(), place, size, changed });
        Ok(())
    }
}
