//! The directory that the paths of files lead to.

use std::{
    ffi::OsStr,
    fs::{File, Permissions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::PermissionsExt as _,
    },
    path::{Component, Path},
    sync::Arc,
};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags},
    io::Errno,
};
use tempfile::Builder;

use crate::new_file::{NewFile, Place, Unfinished};

/// The permissions of a new file, before those that the process masks are removed.
pub(crate) const MODE: u32 = 0o666;
/// The beginning of the name of a file that is not complete.
pub(crate) const UNFINISHED: &str = ".outrigger-";
const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Does not wait for the writer of a pipe, which is refused after it was opened.
const OPEN_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// An open directory. Paths below it are walked from it, one name at a time, and symbolic links are
/// refused. Clones share it.
#[derive(Debug, Clone)]
pub struct Directory(Arc<OwnedFd>);

/// The directory that the paths of files lead to.
#[derive(Debug, Clone, Default)]
pub enum Root {
    /// Paths may lead anywhere.
    #[default]
    Any,
    /// Paths lead to files below one directory.
    Below(Directory),
}

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// It is not a directory, or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Its own path may have symbolic links: the operator chose it.
        let flags = OPEN_DIRECTORY.difference(OFlags::NOFOLLOW);
        Ok(Self(fs::openat(CWD, path, flags, Mode::empty())?.into()))
    }

    /// The directory at `path` below this one.
    ///
    /// # Errors
    /// It cannot be opened, or a link is on the path.
    pub fn directory(&self, path: &Path) -> io::Result<Self> {
        self.descend(&names(path)?)
    }

    /// The directory of the file at `path` below this one, and the name of the file.
    ///
    /// # Errors
    /// The directory cannot be opened, or a link is on the path.
    pub fn place<'p>(&self, path: &'p Path) -> io::Result<(Self, &'p OsStr)> {
        let names = names(path)?;
        let (name, parents) = names.split_last().ok_or_else(outside)?;
        Ok((self.descend(parents)?, *name))
    }

    /// Opens the regular file at `path` for reading.
    ///
    /// # Errors
    /// It cannot be opened, is something else, or a link is on the path.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        let (parent, name) = self.place(path)?;
        regular(fs::openat(&parent, name, OPEN_FILE, Mode::empty()).map_err(refusal)?)
    }

    fn descend(&self, names: &[&OsStr]) -> io::Result<Self> {
        let open = |directory: Self, name: &&OsStr| {
            let opened = fs::openat(&directory, *name, OPEN_DIRECTORY, Mode::empty());
            Ok(Self(opened.map_err(refusal)?.into()))
        };
        names.iter().try_fold(self.clone(), open)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Root {
    /// The files below the directory at `path`.
    ///
    /// # Errors
    /// It is not a directory, or cannot be opened.
    pub fn below(path: &Path) -> io::Result<Self> {
        Directory::open(path).map(Self::Below)
    }

    /// Opens a regular file for reading.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        match self {
            Self::Any => {
                let flags = OPEN_FILE.difference(OFlags::NOFOLLOW);
                regular(fs::openat(CWD, path, flags, Mode::empty())?)
            }
            Self::Below(directory) => directory.file(path),
        }
    }

    /// Begins a file that appears at `path` when it is complete. An existing file is replaced then,
    /// or if `replace` is false it is an error.
    pub(crate) fn create(&self, path: &Path, replace: bool) -> io::Result<NewFile> {
        let (place, file) = match self {
            Self::Any => {
                check_existing(fs::stat(path), replace)?;
                let mut builder = Builder::new();
                builder.prefix(UNFINISHED).permissions(Permissions::from_mode(MODE));
                let file = builder.tempfile_in(parent(path))?;
                let handle = file.reopen()?;
                (Place::Path { file, path: path.to_owned() }, handle)
            }
            Self::Below(root) => {
                let (directory, name) = root.place(path)?;
                let existing = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
                check_existing(existing, replace)?;
                let (unfinished, file) = Unfinished::begin(directory)?;
                (Place::Below { unfinished, name: name.to_owned() }, file)
            }
        };
        Ok(NewFile::new(file, place, replace))
    }
}

/// The directory of a file.
pub(crate) fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Refuses to replace something that is not a file, or any file unless `replace` is true.
fn check_existing(existing: rustix::io::Result<fs::Stat>, replace: bool) -> io::Result<()> {
    match existing {
        Err(_) => Ok(()),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
            Err(not_a_file())
        }
        Ok(_) if replace => Ok(()),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// The file, if it is a regular one.
fn regular(file: OwnedFd) -> io::Result<File> {
    let file = File::from(file);
    match file.metadata()?.file_type() {
        of if of.is_file() => Ok(file),
        of if of.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(not_a_file()),
    }
}

/// The names on a path that stays below a directory.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let name = |component| match component {
        Component::Normal(name) => Some(Ok(name)),
        Component::CurDir => None,
        _ => Some(Err(outside())),
    };
    path.components().filter_map(name).collect()
}

fn outside() -> io::Error {
    let message = "the path must be relative and must not contain `..`";
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn refusal(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR => {
            let message = "a symbolic link, or not a directory, is on the path";
            io::Error::new(io::ErrorKind::InvalidInput, message)
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests;
