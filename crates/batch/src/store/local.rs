//! A directory as a store. Its own path may have symbolic links: the operator chose it. Below it none is
//! followed, so whoever may write there cannot lead a job to files elsewhere.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, BufWriter, Read as _, Write},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Arc, OnceLock},
};

use outrigger_tables::{Directory, Unfinished};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fsync, mkdirat, openat, statat, unlinkat},
    io::Errno,
};

/// The beginning of the names of files that are not complete.
const UNFINISHED: &[u8] = b".outrigger-";
/// The permissions of locks and of directories, before those that the process masks are removed.
const MODE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
const OPEN_LOCK: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The objects below a directory.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) root: Arc<Path>,
    /// The directory, from the time on at which it is there.
    opened: Arc<OnceLock<Directory>>,
}

/// A file that is being written, under a temporary name. Dropping it removes it.
pub(super) struct NewFile {
    unfinished: Unfinished,
    name: OsString,
    file: BufWriter<File>,
}

impl Local {
    pub(super) fn new(root: Arc<Path>) -> Self {
        Self { root, opened: Arc::default() }
    }

    pub(super) fn begin(&self, name: &str) -> io::Result<NewFile> {
        let (directory, name) = match self.place(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_directory(name)?;
                self.place(name)?
            }
            found => found?,
        };
        let (unfinished, file) = Unfinished::begin(directory)?;
        Ok(NewFile { unfinished, name: name.to_owned(), file: BufWriter::new(file) })
    }

    /// Creates or replaces a file. If `is_durable`, the new content is on the disk afterwards.
    pub(super) fn replace(&self, name: &str, content: &[u8], is_durable: bool) -> io::Result<()> {
        let NewFile { mut unfinished, name, file } = self.begin(name)?;
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.write_all(content)?;
        if is_durable {
            file.sync_all()?;
        }
        unfinished.rename(&name)?;
        if is_durable { unfinished.sync() } else { Ok(()) }
    }

    pub(super) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.read_start(name, u64::MAX)
    }

    pub(super) fn open(&self, name: &str) -> io::Result<Option<File>> {
        absent_is_none(self.opened().and_then(|root| root.file(Path::new(name))))
    }

    pub(super) fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(self.open(name)?.is_some())
    }

    pub(super) fn read_start(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let mut start = Vec::new();
        file.take(most).read_to_end(&mut start)?;
        Ok(Some(start))
    }

    pub(super) fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let names = self.files(directory)?.into_iter().flat_map(|(_, names)| names);
        let names = names.filter_map(|name| name.into_string().ok());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The names of the directories in the root.
    pub(super) fn directories(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in absent_is_none(fs::read_dir(&self.root))?.into_iter().flatten() {
            let entry = entry?;
            if entry.path().is_dir() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        for entry in absent_is_none(fs::read_dir(&self.root))?.into_iter().flatten() {
            if !is_unfinished(&entry?.file_name()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        absent_is_none(self.place(name).and_then(|place| remove(&place))).map(drop)
    }

    pub(super) fn sweep(&self, directory: &str) -> io::Result<()> {
        let Some((directory, names)) = self.files(directory)? else { return Ok(()) };
        for name in names.iter().filter(|name| is_unfinished(name)) {
            absent_is_none(remove(&(directory.clone(), name.as_os_str())))?;
        }
        Ok(())
    }

    /// The file of a lock, which is created.
    pub(super) fn lock(&self, name: &str) -> io::Result<File> {
        let (directory, name) = self.place(name)?;
        let create = OFlags::CREATE | OFlags::WRONLY | OPEN_LOCK;
        let file = match openat(&directory, name, create, MODE) {
            // The file is of another user, whom a change came from before.
            Err(Errno::ACCESS) => openat(&directory, name, OFlags::RDONLY | OPEN_LOCK, MODE),
            file => file,
        };
        Ok(file?.into())
    }

    /// The root. It is opened once, so it stays the same directory.
    fn opened(&self) -> io::Result<&Directory> {
        match self.opened.get() {
            Some(root) => Ok(root),
            None => {
                let root = Directory::open(&self.root)?;
                Ok(self.opened.get_or_init(|| root))
            }
        }
    }

    /// The directory of an object, and the name that it has there.
    fn place<'n>(&self, name: &'n str) -> io::Result<(Directory, &'n OsStr)> {
        self.opened()?.place(Path::new(name))
    }

    /// A directory with the names of what it has besides directories; `None` if it does not exist.
    /// Another program may keep directories there, such as a table's log.
    fn files(&self, directory: &str) -> io::Result<Option<(Directory, Vec<OsString>)>> {
        let found = self.opened().and_then(|root| root.directory(Path::new(directory)));
        let Some(directory) = absent_is_none(found)? else { return Ok(None) };
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
                    found.map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode))
                }
                kind => kind,
            };
            if kind != FileType::Directory {
                names.push(name.to_owned());
            }
        }
        Ok(Some((directory, names)))
    }

    /// Creates the directory of an object, and the root with those above it, durably.
    fn create_directory(&self, name: &str) -> io::Result<()> {
        create_directories(&self.root)?;
        let Some((directory, _)) = name.rsplit_once('/') else { return Ok(()) };
        let root = self.opened()?;
        match mkdirat(root, directory, DIRECTORY_MODE) {
            Err(error) if error != Errno::EXIST => Err(error.into()),
            _ => Ok(fsync(root)?),
        }
    }
}

impl NewFile {
    /// Gives the file its name, durably, unless it is taken. Returns true if it was free. `step` is
    /// called with the name of each step before it is taken.
    pub(super) fn finish(self, step: impl Fn(&str)) -> io::Result<bool> {
        let Self { mut unfinished, name, file } = self;
        step("flush");
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        step("sync");
        file.sync_all()?;
        step("link");
        let is_new = match unfinished.rename_new(&name) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        step("sync the directory");
        unfinished.sync()?;
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

fn remove((directory, name): &(Directory, &OsStr)) -> io::Result<()> {
    Ok(unlinkat(directory, *name, AtFlags::empty())?)
}

fn is_unfinished(name: &OsStr) -> bool {
    name.as_bytes().starts_with(UNFINISHED)
}

fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
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
        _ => File::open(above)?.sync_all(),
    }
}
