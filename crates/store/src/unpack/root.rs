//! Writing below one directory and nowhere else: every step is taken from an
//! open directory, one name at a time, and never through a link.

use std::{
    cell::Cell,
    collections::HashSet,
    ffi::{CStr, OsStr},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::name::{Place, shown};
use crate::{EntryProblem, Error, disk};

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that an image is unpacked into.
pub(super) struct Root {
    dir: OwnedFd,
    path: PathBuf,
    /// Directories made because a name leads through them.
    implied: Cell<u64>,
}

/// Why an entry could not be written.
#[derive(Debug)]
pub(super) enum Fault {
    /// The entry is at fault.
    Entry(EntryProblem),
    /// The file system is.
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

    /// How many directories were made, since this was last asked, only because
    /// an entry's name leads through them.
    pub(super) fn take_implied(&self) -> u64 {
        self.implied.take()
    }

    /// Makes a directory, or keeps the one that is there.
    pub(super) fn make_dir(&self, place: &Place) -> Result<(), Fault> {
        let Some((last, parent)) = self.split(place)? else { return Ok(()) };
        if kind(&parent, last).is_some_and(|kind| kind != FileType::Directory) {
            self.clear(&parent, last, place)?;
        }
        self.child(&parent, last, place).map(drop)
    }

    /// Makes a new, empty file in the place of whatever is there.
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

    /// Makes a symbolic link in the place of whatever is there.
    pub(super) fn make_symlink(&self, place: &Place, target: &Path) -> Result<(), Fault> {
        let Some((last, parent)) = self.split(place)? else {
            return Err(EntryProblem::Name.into());
        };
        self.clear(&parent, last, place)?;
        fs::symlinkat(target, &parent, last).map_err(|error| self.failed("link", place, error))
    }

    /// Makes another name of a file that is there already.
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
            // It was in the directory that this link replaces.
            Err(Errno::NOENT) => Err(wrong().into()),
            other => other.map_err(|error| self.failed("link", place, error)),
        }
    }

    /// Removes what lower layers put at `place`, but nothing of `keep`.
    pub(super) fn hide(&self, place: &Place, keep: &HashSet<PathBuf>) -> Result<(), Fault> {
        let Some((last, parents)) = place.0.split_last() else { return Ok(()) };
        let Some(parent) = self.existing(parents)? else { return Ok(()) };
        self.remove(&parent, last, &place.path(), keep).map(drop)
    }

    /// The same for everything in the directory at `place`.
    pub(super) fn hide_inside(&self, place: &Place, keep: &HashSet<PathBuf>) -> Result<(), Fault> {
        let Some(dir) = self.existing(&place.0)? else { return Ok(()) };
        self.remove_inside(&dir, &place.path(), keep).map(drop)
    }

    /// The last name of `place`, and its directory, made when missing.
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

    /// The directory `name` of `dir`, and whether it was missing and made.
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

    /// The directory that `parts` lead to, if they do and without a link.
    fn existing(&self, parts: &[std::ffi::OsString]) -> Result<Option<OwnedFd>, Fault> {
        let mut dir = self.own()?;
        for part in parts {
            dir = match fs::openat(&dir, part, OPEN_DIR, Mode::empty()) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                other => other.map_err(|error| self.failed("open", &Place(parts.into()), error))?,
            };
        }
        Ok(Some(dir))
    }

    fn own(&self) -> Result<OwnedFd, Fault> {
        let own = self.dir.try_clone();
        Ok(own.map_err(|error| Error::io("open", &self.path, error))?)
    }

    /// Removes whatever is called `name` in `dir`: the later entry wins.
    fn clear(&self, dir: &OwnedFd, name: &OsStr, place: &Place) -> Result<(), Fault> {
        self.remove(dir, name, &place.path(), &HashSet::new()).map(drop)
    }

    /// Removes `name` with what is in it; tells whether nothing was to be kept.
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

/// What `name` in `dir` is, itself and not what it links to.
fn kind(dir: &OwnedFd, name: &OsStr) -> Option<FileType> {
    let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
