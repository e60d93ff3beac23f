//! The place of a job's output: objects with names, in a directory.
//!
//! An object is there as a whole or not at all, also after a crash at any moment. Everything that
//! decides about rows is created once and never changed.

use std::{
    fmt,
    fs::{self, DirEntry, File, Permissions},
    io::{self, BufWriter, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::NamedTempFile;

/// The beginning of the names of files that are not complete.
const UNFINISHED: &str = ".outrigger-";
/// The permissions of a file, before those that the process masks are removed.
const MODE: u32 = 0o666;

/// A place with objects. Clones share it. Its calls block.
#[derive(Clone)]
pub struct Store {
    root: Arc<Path>,
    observer: Arc<Observer>,
}

/// Called with the name of each step before a store takes it.
type Observer = dyn Fn(&str) + Send + Sync;

/// An object that is being written. Dropping it removes it.
pub struct NewObject {
    store: Store,
    name: String,
    file: BufWriter<NamedTempFile>,
}

impl Store {
    /// The objects below the directory `root`, which is created with the first object.
    pub fn local(root: impl Into<PathBuf>) -> Self {
        let root: PathBuf = root.into();
        Self { root: root.into(), observer: Arc::new(|_| {}) }
    }

    /// The same objects. `observer` is called with the name of each step before it is taken, so that
    /// a test can end the process there.
    #[must_use]
    pub fn observed(self, observer: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { observer: Arc::new(observer), ..self }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn step(&self, name: &str, step: &str) {
        (self.observer)(&format!("{name}: {step}"));
    }

    /// Creates an object, durably, unless there is one of this name. Returns true if it was created.
    ///
    /// # Errors
    /// The file system failed.
    pub fn create(&self, name: &str, content: &[u8]) -> io::Result<bool> {
        let mut object = self.begin(name)?;
        object.write_all(content)?;
        object.finish()
    }

    /// Begins an object. It is there after [`NewObject::finish`].
    ///
    /// # Errors
    /// The file system failed.
    pub fn begin(&self, name: &str) -> io::Result<NewObject> {
        self.step(name, "begin");
        let file = self.unfinished(name)?;
        Ok(NewObject { store: self.clone(), name: name.to_owned(), file: BufWriter::new(file) })
    }

    /// Creates or replaces an object. It is whole at any moment, but may be lost in a crash of the
    /// machine: for leases and reports of progress.
    ///
    /// # Errors
    /// The file system failed.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = self.unfinished(name)?;
        file.write_all(content)?;
        file.persist(self.path(name)).map_err(|cause| cause.error)?;
        Ok(())
    }

    /// The content of an object; `None` if there is none of this name.
    ///
    /// # Errors
    /// The file system failed.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        absent_is_none(fs::read(self.path(name)))
    }

    /// True if there is an object of this name.
    ///
    /// # Errors
    /// The file system failed.
    pub(crate) fn exists(&self, name: &str) -> io::Result<bool> {
        self.path(name).try_exists()
    }

    /// The names of the objects in `directory`, without it, in order.
    ///
    /// # Errors
    /// The file system failed.
    pub fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let Some(entries) = absent_is_none(fs::read_dir(self.path(directory)))? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().into_string();
            names.extend(name.ok().filter(|name| !name.starts_with('.')));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// True if there are no objects, and nothing else beside files that were never finished.
    ///
    /// # Errors
    /// The file system failed.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        let Some(entries) = absent_is_none(fs::read_dir(&self.root))? else { return Ok(true) };
        for entry in entries {
            if !is_unfinished(&entry?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes an object. It is no error if there is none.
    ///
    /// # Errors
    /// The file system failed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.step(name, "remove");
        absent_is_none(fs::remove_file(self.path(name))).map(drop)
    }

    /// Removes the files of `directory` that were begun and never finished.
    ///
    /// # Errors
    /// The file system failed.
    pub fn sweep(&self, directory: &str) -> io::Result<()> {
        let Some(entries) = absent_is_none(fs::read_dir(self.path(directory)))? else {
            return Ok(());
        };
        for entry in entries {
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

impl NewObject {
    /// Completes the object, durably, unless there is one of this name. Returns true if it was
    /// created.
    ///
    /// # Errors
    /// The file system failed.
    pub fn finish(self) -> io::Result<bool> {
        let Self { store, name, file } = self;
        store.step(&name, "flush");
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        store.step(&name, "sync");
        file.as_file().sync_all()?;
        store.step(&name, "link");
        let path = store.path(&name);
        let is_new = match file.persist_noclobber(&path) {
            Ok(_) => true,
            Err(cause) if cause.error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(cause) => return Err(cause.error),
        };
        store.step(&name, "sync the directory");
        sync_directory(path.parent().unwrap_or(&store.root))?;
        store.step(&name, "done");
        Ok(is_new)
    }
}

impl Write for NewObject {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.root).finish()
    }
}

impl fmt::Debug for NewObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewObject").field(&self.name).finish()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path().join("a/b"));
        (directory, store)
    }

    #[test]
    fn an_object_is_created_once() {
        let (_directory, store) = store();
        assert_eq!(store.read("commit/0.json").expect("read"), None);
        assert!(store.create("commit/0.json", b"first").expect("created"));
        assert!(!store.create("commit/0.json", b"second").expect("refused"));
        assert_eq!(store.read("commit/0.json").expect("read"), Some(b"first".to_vec()));
        store.create("commit/1.json", b"").expect("created");
        assert_eq!(store.list("commit").expect("listed"), ["0.json", "1.json"]);
        assert_eq!(store.list("data").expect("listed"), Vec::<String>::new());
    }

    #[test]
    fn an_object_that_is_not_finished_is_not_there() {
        let (_directory, store) = store();
        let mut object = store.begin("data/0").expect("begun");
        object.write_all(b"half").expect("written");
        assert_eq!(store.list("data").expect("listed"), Vec::<String>::new());
        // The process ends here: the file is left, and removed later.
        std::mem::forget(object);
        let entries = || fs::read_dir(store.root().join("data")).expect("a directory").count();
        assert_eq!(entries(), 1);
        let data = Store::local(store.root().join("data"));
        assert!(data.is_empty().expect("read") && !store.is_empty().expect("read"));
        store.sweep("data").expect("swept");
        assert_eq!(entries(), 0);
    }

    #[test]
    fn replacing_and_removing_leave_one_object_or_none() {
        let (_directory, store) = store();
        store.replace("lease/0", b"a").expect("written");
        store.replace("lease/0", b"b").expect("written");
        assert_eq!(store.read("lease/0").expect("read"), Some(b"b".to_vec()));
        store.remove("lease/0").expect("removed");
        store.remove("lease/0").expect("nothing to remove");
        assert_eq!(store.list("lease").expect("listed"), Vec::<String>::new());
    }
}
