//! A directory as a store.

use std::{
    fs::{self, DirEntry, File, Permissions},
    io::{self, BufWriter, Read as _, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::NamedTempFile;

/// The beginning of the names of files that are not complete.
const UNFINISHED: &str = ".outrigger-";
/// The permissions of a file, before those that the process masks are removed.
const MODE: u32 = 0o666;

/// The objects below a directory.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) root: Arc<Path>,
}

/// A file that is being written, under a temporary name. Dropping it removes it.
pub(super) struct NewFile {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl Local {
    pub(super) fn begin(&self, name: &str) -> io::Result<NewFile> {
        let file = BufWriter::new(self.unfinished(name)?);
        Ok(NewFile { path: self.path(name), file })
    }

    /// Creates or replaces a file. If `is_durable`, the new content is on the disk afterwards.
    pub(super) fn replace(&self, name: &str, content: &[u8], is_durable: bool) -> io::Result<()> {
        let (mut file, path) = (self.unfinished(name)?, self.path(name));
        file.write_all(content)?;
        if is_durable {
            file.as_file().sync_all()?;
        }
        file.persist(&path).map_err(|cause| cause.error)?;
        match is_durable {
            true => sync_directory(path.parent().unwrap_or(&self.root)),
            false => Ok(()),
        }
    }

    pub(super) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        absent_is_none(fs::read(self.path(name)))
    }

    pub(super) fn open(&self, name: &str) -> io::Result<Option<File>> {
        absent_is_none(File::open(self.path(name)))
    }

    pub(super) fn exists(&self, name: &str) -> io::Result<bool> {
        self.path(name).try_exists()
    }

    pub(super) fn read_start(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let mut start = Vec::new();
        file.take(most).read_to_end(&mut start)?;
        Ok(Some(start))
    }

    pub(super) fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in entries(&self.path(directory))? {
            let entry = entry?;
            // Another program may keep something beside the files, such as a table's log.
            if entry.file_type()?.is_dir() {
                continue;
            }
            let name = entry.file_name().into_string();
            names.extend(name.ok().filter(|name| !name.starts_with('.')));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The names of the directories in the root.
    pub(super) fn directories(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in entries(&self.root)? {
            let entry = entry?;
            if entry.path().is_dir() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        for entry in entries(&self.root)? {
            if !is_unfinished(&entry?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        absent_is_none(fs::remove_file(self.path(name))).map(drop)
    }

    pub(super) fn sweep(&self, directory: &str) -> io::Result<()> {
        for entry in entries(&self.path(directory))? {
            let entry = entry?;
            if is_unfinished(&entry) {
                absent_is_none(fs::remove_file(entry.path()))?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn unfinished(&self, name: &str) -> io::Result<NamedTempFile> {
        let path = self.path(name);
        let directory = path.parent().unwrap_or(&self.root);
        create_directories(directory)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(UNFINISHED).permissions(Permissions::from_mode(MODE));
        builder.tempfile_in(directory)
    }
}

impl NewFile {
    /// Gives the file its name, durably, unless it is taken. Returns true if it was free. `step` is
    /// called with the name of each step before it is taken.
    pub(super) fn finish(self, step: impl Fn(&str)) -> io::Result<bool> {
        let Self { path, file } = self;
        step("flush");
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        step("sync");
        file.as_file().sync_all()?;
        step("link");
        let is_new = match file.persist_noclobber(&path) {
            Ok(_) => true,
            Err(cause) if cause.error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(cause) => return Err(cause.error),
        };
        step("sync the directory");
        sync_directory(path.parent().unwrap_or(Path::new(".")))?;
        Ok(is_new)
    }
}

impl Write for NewFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The entries of a directory; none if it does not exist.
fn entries(directory: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>> + use<>> {
    Ok(absent_is_none(fs::read_dir(directory))?.into_iter().flatten())
}

fn is_unfinished(entry: &DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with(UNFINISHED)
}

fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Creates a directory and those above it, durably.
fn create_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() || directory.as_os_str().is_empty() {
        return Ok(());
    }
    let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    create_directories(above)?;
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_directory(above),
    }
}
