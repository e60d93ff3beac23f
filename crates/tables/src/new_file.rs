//! Files that appear when they are complete.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
};

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

/// A name that is removed from its directory when the value is dropped, unless the file has got
/// another name: then another process may have created a file of this name.
#[derive(Debug)]
pub(crate) struct Unfinished {
    directory: OwnedFd,
    name: OsString,
    is_renamed: bool,
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
            Place::Below { mut unfinished, name } => {
                match replace {
                    true => unfinished.rename(&name),
                    false => unfinished.link(&name),
                }?;
                Ok(fs::fsync(&unfinished.directory)?)
            }
        }
    }
}

impl Unfinished {
    /// The name of a file that was created in `directory`.
    pub(crate) fn new(directory: OwnedFd, name: OsString) -> Self {
        Self { directory, name, is_renamed: false }
    }

    /// Gives the file another name; one that has it is replaced.
    fn rename(&mut self, name: &OsStr) -> io::Result<()> {
        fs::renameat(&self.directory, &self.name, &self.directory, name)?;
        self.is_renamed = true;
        Ok(())
    }

    /// Gives the file a further name, which no file has.
    fn link(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::linkat(&self.directory, &self.name, &self.directory, name, AtFlags::empty())?)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_renamed {
            // The file stays if it cannot be removed.
            let _ = fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_renamed_file_leaves_its_earlier_name_to_others() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [before, after] = ["before", "after"].map(|name| scratch.path().join(name));
        for is_renamed in [true, false] {
            fs::write(&before, "own").expect("a file");
            let directory = File::open(scratch.path()).expect("a directory").into();
            let mut unfinished = Unfinished::new(directory, "before".into());
            if is_renamed {
                unfinished.rename("after".as_ref()).expect("renamed");
                fs::write(&before, "of another process").expect("a file");
            }
            drop(unfinished);
            assert_eq!((before.exists(), after.exists()), (is_renamed, true));
        }
    }
}
