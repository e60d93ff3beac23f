//! Opens directories and files below an open directory, never through a symbolic link.

use std::{ffi::OsStr, fs::File, os::fd::OwnedFd};

use rustix::{
    fs::{self, Mode, OFlags},
    io::Errno,
};

pub(crate) const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Without NONBLOCK, opening a named pipe would wait for a writer.
const OPEN_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens the directory at `parts` below `dir`.
pub(crate) fn directory<'p>(
    mut dir: OwnedFd,
    parts: impl IntoIterator<Item = &'p OsStr>,
) -> Result<OwnedFd, Errno> {
    for part in parts {
        dir = fs::openat(&dir, part, OPEN_DIR, Mode::empty())?;
    }
    Ok(dir)
}

/// Opens the file `name` in `dir` for reading. It may be of any kind but a symbolic link.
pub(crate) fn file(dir: &OwnedFd, name: &OsStr) -> Result<File, Errno> {
    fs::openat(dir, name, OPEN_FILE, Mode::empty()).map(File::from)
}

/// True if something on the path does not exist, is a symbolic link, or is no directory.
pub(crate) fn is_absent(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}
