//! Files that appear when they are complete.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    path::PathBuf,
};

use rustix::{
    fs::{self, AtFlags, Mode, OFlags, RenameFlags},
    io::Errno,
};
use tempfile::NamedTempFile;

use crate::{
    Directory,
    root::{MODE, UNFINISHED, parent},
};

/// The attempts at a name that no other file has.
const ATTEMPTS: u32 = 10;
const CREATE_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

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
pub struct Unfinished {
    directory: Directory,
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
                    false => unfinished.rename_new(&name),
                }?;
                unfinished.sync()
            }
        }
    }
}

impl Unfinished {
    /// Creates a file in `directory` under a name that no other file there has.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn begin(directory: Directory) -> io::Result<(Self, File)> {
        for _ in 0..ATTEMPTS {
            // Processes in other containers, which have the same number, write there too.
            let number = RandomState::new().build_hasher().finish();
            let name = OsString::from(format!("{UNFINISHED}{number:016x}"));
            match fs::openat(&directory, &name, CREATE_FILE, Mode::from_raw_mode(MODE)) {
                Ok(file) => return Ok((Self { directory, name, is_renamed: false }, file.into())),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("too many unfinished files in the directory"))
    }

    /// Gives the file another name in its directory; one that has it is replaced.
    ///
    /// # Errors
    /// The file system failed.
    pub fn rename(&mut self, name: &OsStr) -> io::Result<()> {
        fs::renameat(&self.directory, &self.name, &self.directory, name)?;
        self.is_renamed = true;
        Ok(())
    }

    /// Gives the file another name in its directory, which no file has.
    ///
    /// # Errors
    /// A file has it (`AlreadyExists`), or the file system failed.
    pub fn rename_new(&mut self, name: &OsStr) -> io::Result<()> {
        let Self { directory, name: before, .. } = self;
        let flags = RenameFlags::NOREPLACE;
        match fs::renameat_with(&*directory, &*before, &*directory, name, flags) {
            // Not every file system has this call.
            Err(Errno::INVAL | Errno::NOSYS) => {
                Ok(fs::linkat(&*directory, &*before, &*directory, name, AtFlags::empty())?)
            }
            renamed => {
                renamed?;
                self.is_renamed = true;
                Ok(())
            }
        }
    }

    /// Writes the names of the directory to the disk.
    ///
    /// # Errors
    /// The file system failed.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.directory)?)
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
        for is_renamed in [false, true] {
            let directory = Directory::open(scratch.path()).expect("a directory");
            let (mut unfinished, _) = Unfinished::begin(directory).expect("begun");
            let before = scratch.path().join(&unfinished.name);
            if is_renamed {
                unfinished.rename("after".as_ref()).expect("renamed");
                fs::write(&before, "of another process").expect("a file");
            }
            drop(unfinished);
            assert_eq!(before.exists(), is_renamed);
            assert_eq!(scratch.path().join("after").exists(), is_renamed);
        }
    }
}
