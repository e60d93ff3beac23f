//! Writes below one directory only: links on the way to an entry are first resolved within it, by
//! their text. The path that results is walked from an open directory, one name at a time, and never
//! through a symbolic link.

use std::{
    cell::Cell,
    collections::HashSet,
    ffi::{CStr, OsStr, OsString},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::name::{Place, parts_of, shown};
use crate::{
    EntryProblem, Error,
    beneath::{self, OPEN_DIR},
    disk,
};

/// The most names that are looked at to resolve the links on the way to an entry. It also ends a
/// circle of links.
const STEPS: usize = 256;

/// The directory that an image is unpacked into.
pub(super) struct Root {
    dir: OwnedFd,
    path: PathBuf,
    /// Directories created only as parents of an entry.
    implied: Cell<u64>,
}

/// The reason why an entry could not be written.
#[derive(Debug)]
pub(super) enum Fault {
    /// The entry is refused.
    Entry(EntryProblem),
    /// The file system failed.
    Failed(Error),
}

impl From<EntryProblem> for Fault {
    fn from(problem: EntryProblem) -> Self {
        Self::Entry(problem)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Root {
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        let dir = fs::openat(CWD, &path, OPEN_DIR, Mode::empty())
            .map_err(|error| Error::io("open", &path, error.into()))?;
        Ok(Self { dir, path, implied: Cell::new(0) })
    }

    /// The place behind the symbolic links on the way to `place`, as other tools that unpack images
    /// have it: `..` does not lead above the image's root, and the last name is not followed.
    pub(super) fn real(&self, place: &Place) -> Result<Place, Fault> {
        let Some((last, parents)) = place.0.split_last() else { return Ok(place.clone()) };
        let mut ahead: Vec<OsString> = parents.iter().rev().cloned().collect();
        let mut real = Place(Vec::new());
        for _ in 0..STEPS {
            let Some(part) = ahead.pop() else {
                real.0.push(last.clone());
                // The limits hold for the place that is written.
                return Ok(Place::parse(real.path().as_os_str().as_bytes())?);
            };
            if part == ".." {
                real.0.pop();
                continue;
            }
            real.0.push(part);
            if let Ok(target) = fs::readlinkat(&self.dir, real.path(), Vec::new()) {
                real.0.pop();
                let names = parts_of(target.to_bytes()).rev().map(OsStr::from_bytes);
                ahead.extend(names.map(OsStr::to_owned));
            }
        }
        Err(EntryProblem::Links(STEPS).into())
    }

    /// The number of directories created as parents of an entry since the last call.
    pub(super) fn take_implied(&self) -> u64 {
        self.implied.take()
    }

    /// Creates a directory unless it exists; a file there is replaced.
    pub(super) fn make_dir(&self, place: &Place) -> Result<(), Fault> {
        let Some((last, parent)) = self.split(place)? else { return Ok(()) };
        if kind(&parent, last).is_some_and(|kind| kind != FileType::Directory) {
            self.clear(&parent, last, place)?;
        }
        self.child(&parent, last, place).map(drop)
    }

    /// Creates an empty file, replacing an existing entry.
    pub(super) fn make_file(&self, place: &Place) -> Result<File, Fault> {
        let Some((last, parent)) = self.split(place)? else {
            return Err(EntryProblem::Name.into());
        };
        self.clear(&parent, last, place)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(disk::FILE_MODE);
        let file = fs::openat(&parent, last, flags, mode)
            .and_then(|file| fs::fchmod(&file, mode).map(|()| file))
            .map_err(|error| self.failed("create", place, error))?;
        Ok(File::from(file))
    }

    /// Creates a symbolic link, replacing an existing entry.
    pub(super) fn make_symlink(&self, place: &Place, target: &Path) -> Result<(), Fault> {
        let Some((last, parent)) = self.split(place)? else {
            return Err(EntryProblem::Name.into());
        };
        self.clear(&parent, last, place)?;
        fs::symlinkat(target, &parent, last).map_err(|error| self.failed("link", place, error))
    }

    /// Creates a hard link to an existing file.
    pub(super) fn make_hard_link(&self, place: &Place, target: &Place) -> Result<(), Fault> {
        let wrong = || EntryProblem::LinkTarget(shown(target.path().as_os_str().as_bytes()));
        let Some((last, parents)) = target.0.split_last() else { return Err(wrong().into()) };
        let source = self.existing(parents)?.ok_or_else(wrong)?;
        if place == target || kind(&source, last) != Some(FileType::RegularFile) {
            return Err(wrong().into());
        }
        let Some((name, parent)) = self.split(place)? else {
            return Err(EntryProblem::Name.into());
        };
        self.clear(&parent, name, place)?;
        match fs::linkat(&source, last, &parent, name, AtFlags::empty()) {
            // The target was in the directory that this link has replaced.
            Err(Errno::NOENT) => Err(wrong().into()),
            other => other.map_err(|error| self.failed("link", place, error)),
        }
    }

    /// Removes the entry of lower layers at `place`, except the paths in `keep`.
    pub(super) fn hide(&self, place: &Place, keep: &HashSet<PathBuf>) -> Result<(), Fault> {
        let Some((last, parents)) = place.0.split_last() else { return Ok(()) };
        let Some(parent) = self.existing(parents)? else { return Ok(()) };
        self.remove(&parent, last, &place.path(), keep).map(drop)
    }

    /// Removes the content of the directory at `place`, except the paths in `keep`.
    pub(super) fn hide_inside(&self, place: &Place, keep: &HashSet<PathBuf>) -> Result<(), Fault> {
        let Some(dir) = self.existing(&place.0)? else { return Ok(()) };
        self.remove_inside(&dir, &place.path(), keep).map(drop)
    }

    /// The last part of `place`, and its parent directory, created if missing.
    fn split<'p>(&self, place: &'p Place) -> Result<Option<(&'p OsStr, OwnedFd)>, Fault> {
        let Some((last, parents)) = place.0.split_last() else { return Ok(None) };
        let mut dir = self.own()?;
        for part in parents {
            let made;
            (dir, made) = self.child(&dir, part, place)?;
            self.implied.update(|implied| implied + u64::from(made));
        }
        Ok(Some((last, dir)))
    }

    /// Opens the directory `name` in `dir`, creating it if missing; returns true if it was created.
    fn child(&self, dir: &OwnedFd, name: &OsStr, place: &Place) -> Result<(OwnedFd, bool), Fault> {
        let mode = Mode::from_raw_mode(disk::DIR_MODE);
        let made = match fs::mkdirat(dir, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(self.failed("create directory", place, error)),
        };
        let child = match fs::openat(dir, name, OPEN_DIR, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(EntryProblem::NotADirectory(shown(name.as_bytes())).into());
            }
            other => other.map_err(|error| self.failed("open", place, error))?,
        };
        if made {
            fs::fchmod(&child, mode)
                .map_err(|error| self.failed("set the mode of", place, error))?;
        }
        Ok((child, made))
    }

    /// Opens the directory at `parts`; `None` if it does not exist or a link is on the path.
    fn existing(&self, parts: &[OsString]) -> Result<Option<OwnedFd>, Fault> {
        match beneath::directory(self.own()?, parts.iter().map(|part| part.as_os_str())) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if beneath::is_absent(error) => Ok(None),
            Err(error) => Err(self.failed("open", &Place(parts.into()), error)),
        }
    }

    fn own(&self) -> Result<OwnedFd, Fault> {
        let own = self.dir.try_clone();
        Ok(own.map_err(|error| Error::io("open", &self.path, error))?)
    }

    /// Removes the entry `name` of `dir`, because a later entry replaces an earlier one.
    fn clear(&self, dir: &OwnedFd, name: &OsStr, place: &Place) -> Result<(), Fault> {
        self.remove(dir, name, &place.path(), &HashSet::new()).map(drop)
    }

    /// Removes `name` with its content, except the paths in `keep`. Returns true if it was removed
    /// completely.
    fn remove(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        path: &Path,
        keep: &HashSet<PathBuf>,
    ) -> Result<bool, Fault> {
        let flags = match kind(dir, name) {
            None => return Ok(true),
            Some(FileType::Directory) => {
                let inner = fs::openat(dir, name, OPEN_DIR, Mode::empty())
                    .map_err(|error| self.failed_at("open", path, error))?;
                if !self.remove_inside(&inner, path, keep)? || keep.contains(path) {
                    return Ok(false);
                }
                AtFlags::REMOVEDIR
            }
            Some(_) if keep.contains(path) => return Ok(false),
            Some(_) => AtFlags::empty(),
        };
        fs::unlinkat(dir, name, flags).map_err(|error| self.failed_at("remove", path, error))?;
        Ok(true)
    }

    fn remove_inside(
        &self,
        dir: &OwnedFd,
        path: &Path,
        keep: &HashSet<PathBuf>,
    ) -> Result<bool, Fault> {
        let failed = |error| self.failed_at("list", path, error);
        let mut names = Vec::new();
        for entry in Dir::read_from(dir).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name().to_owned());
        }
        let mut all = true;
        for name in names.iter().filter(|name| !is_dots(name)) {
            let name = OsStr::from_bytes(name.to_bytes());
            all &= self.remove(dir, name, &path.join(name), keep)?;
        }
        Ok(all)
    }

    fn failed(&self, action: &'static str, place: &Place, error: Errno) -> Fault {
        self.failed_at(action, &place.path(), error)
    }

    fn failed_at(&self, action: &'static str, path: &Path, error: Errno) -> Fault {
        Error::io(action, &self.path.join(path), io::Error::from(error)).into()
    }
}

/// The type of the entry `name` in `dir`; a symbolic link is not followed.
fn kind(dir: &OwnedFd, name: &OsStr) -> Option<FileType> {
    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
