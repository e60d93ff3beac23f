//! Opens files of a directory whose content is not trusted: no symbolic link below it is followed,
//! and only regular files are opened.

use std::{
    ffi::OsStr,
    fs::File,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Mode, OFlags},
    io::Errno,
};

use crate::Error;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Without NONBLOCK, opening a named pipe would wait for a writer.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens the regular file at `relative` below `directory` for reading; `None` if it does not exist.
/// `directory` itself may be a symbolic link.
pub(super) fn open(directory: &Path, relative: &Path) -> Result<Option<File>, Error> {
    let path = directory.join(relative);
    let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
        return Err(Error::invalid(path.display().to_string(), "not the name of a file"));
    };
    let Some(parent) = self::directory(directory, parent)? else { return Ok(None) };
    let file = match fs::openat(&parent, name, FILE, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(linked(&path)),
        Err(error) => return Err(Error::io(&path)(error.into())),
    };
    if !file.metadata().map_err(Error::io(&path))?.is_file() {
        return Err(Error::invalid(path.display().to_string(), "not a regular file"));
    }
    Ok(Some(file))
}

/// Opens the directory at `relative` below `directory`; `None` if it does not exist.
pub(super) fn directory(directory: &Path, relative: &Path) -> Result<Option<OwnedFd>, Error> {
    let mut path = directory.to_owned();
    let mut opened = match fs::openat(CWD, directory, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        other => other.map_err(|error| Error::io(&path)(error.into()))?,
    };
    for part in relative.components() {
        path.push(part);
        let Component::Normal(name) = part else {
            return Err(Error::invalid(path.display().to_string(), "not the name of a directory"));
        };
        opened = match fs::openat(&opened, name, DIRECTORY.union(OFlags::NOFOLLOW), Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) if is_link(&opened, name) => {
                return Err(linked(&path));
            }
            Err(Errno::NOTDIR) => return Ok(None),
            other => other.map_err(|error| Error::io(&path)(error.into()))?,
        };
    }
    Ok(Some(opened))
}

fn is_link(parent: &OwnedFd, name: &OsStr) -> bool {
    let found = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

fn linked(path: &Path) -> Error {
    let problem = "a symbolic link inside a layout directory is not followed";
    Error::invalid(path.display().to_string(), problem)
}
