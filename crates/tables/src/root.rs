//! The directory that the paths of files lead to.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Permissions},
    io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
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
const MODE: u32 = 0o666;
/// The beginning of the name of a file that is not complete.
const UNFINISHED: &str = ".outrigger-";
/// The attempts at a name that no other file has.
const ATTEMPTS: u32 = 1000;
const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Does not wait for the writer of a pipe, which is refused after it was opened.
const OPEN_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const CREATE_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// The directory that the paths of files lead to.
#[derive(Debug, Clone, Default)]
pub enum Root {
    /// Paths may lead anywhere.
    #[default]
    Any,
    /// Paths lead to files below one directory: they are walked from the open directory, one name at
    /// a time, and symbolic links are refused.
    Below(Arc<OwnedFd>),
}

impl Root {
    /// The files below the directory at `path`.
    ///
    /// # Errors
    /// It is not a directory, or cannot be opened.
    pub fn below(path: &Path) -> io::Result<Self> {
        // Its own path may have symbolic links: the operator chose it.
        let flags = OPEN_DIRECTORY.difference(OFlags::NOFOLLOW);
        Ok(Self::Below(fs::openat(CWD, path, flags, Mode::empty())?.into()))
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let file = match self {
            Self::Any => File::open(path)?,
            Self::Below(root) => {
                let (parent, name) = walk(root, path)?;
                fs::openat(&parent, name, OPEN_FILE, Mode::empty()).map_err(refusal)?.into()
            }
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        match self {
            Self::Below(_) if !metadata.is_file() => Err(not_a_file()),
            _ => Ok(file),
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
                let (directory, name) = walk(root, path)?;
                let existing = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
                check_existing(existing, replace)?;
                let (unfinished, file) = unfinished(directory)?;
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

/// Opens the directory of the file at `path` below `root`; returns the name of the file, too.
fn walk<'p>(root: &OwnedFd, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
    let message = "the path must be relative and must not contain `..`";
    let outside = || io::Error::new(io::ErrorKind::InvalidInput, message);
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => return Err(outside()),
        }
    }
    let (name, parents) = names.split_last().ok_or_else(outside)?;
    let mut directory = root.try_clone()?;
    for parent in parents {
        directory =
            fs::openat(&directory, *parent, OPEN_DIRECTORY, Mode::empty()).map_err(refusal)?;
    }
    Ok((directory, name))
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

/// Creates a file under a name that no other file in the directory has.
fn unfinished(directory: OwnedFd) -> io::Result<(Unfinished, File)> {
    for attempt in 0..ATTEMPTS {
        let name = OsString::from(format!("{UNFINISHED}{}-{attempt}", std::process::id()));
        match fs::openat(&directory, &name, CREATE_FILE, Mode::from_raw_mode(MODE)) {
            Ok(file) => return Ok((Unfinished::new(directory, name), file.into())),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("too many unfinished files in the directory"))
}

#[cfg(test)]
mod tests;
