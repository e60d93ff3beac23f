//! Files that appear when they are complete.

use std::{ffi::OsString, fs::File, io, os::fd::OwnedFd, path::PathBuf};

use rustix::fs::{self, AtFlags};
use tempfile::NamedTempFile;

use crate::root::parent;

/// A file that is written under another name until it is complete. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    place: Place,
    replace: bool,
}

/// The place of a file that is not complete.
#[derive(Debug)]
pub(crate) enum Place {
    /// Beside the file at a path.
    Path { file: NamedTempFile, path: PathBuf },
    /// In an open directory, where it will have this name.
    Below { unfinished: Unfinished, name: OsString },
}

/// A name that is removed from its directory when the value is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl NewFile {
    pub(crate) fn new(file: File, place: Place, replace: bool) -> Self {
        Self { file, place, replace }
    }

    /// A handle for writing.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Puts the file in its place, on disk, in one step.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        let replace = self.replace;
        match self.place {
            Place::Path { file, path } => {
                let directory = File::open(parent(&path))?;
                match replace {
                    true => file.persist(path),
                    false => file.persist_noclobber(path),
                }
                .map_err(|cause| cause.error)?;
                directory.sync_all()
            }
            Place::Below { unfinished, name } => {
                let Unfinished { directory, name: before } = &unfinished;
                if replace {
                    fs::renameat(directory, before, directory, &name)?;
                } else {
                    fs::linkat(directory, before, directory, &name, AtFlags::empty())?;
                }
                Ok(fs::fsync(directory)?)
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After a rename there is no such file.
        let _ = fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}
