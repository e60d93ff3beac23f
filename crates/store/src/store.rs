//! Opening the store, and the state that its parts share.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytesize::ByteSize;
use outrigger_core::{Digest, Layouts};

use crate::{
    Config, Error, Journal, Result, UnpackLimits, disk, metrics, seen::Seen, space::Claims, tree,
    tree::Sidecars,
};

/// The model store. Cheap to clone; all clones are one store. Its file lock is released when the
/// last clone is dropped, or by the kernel when the process dies.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    pub(crate) max_size: ByteSize,
    pub(crate) limits: UnpackLimits,
    pub(crate) layouts: Layouts,
    pub(crate) journal: Journal,
    /// The engines' directories that this process has opened.
    pub(crate) serving: Mutex<BTreeSet<PathBuf>>,
    /// Reservations. The lock is also held wherever something becomes visible or is removed.
    claims: Mutex<Claims>,
    /// A lock for each digest that is being unpacked, so that it is unpacked once.
    turns: Mutex<HashMap<Digest, Weak<Mutex<()>>>>,
    /// Trees that were evicted and not reported yet.
    pub(crate) evicted: Mutex<Vec<Digest>>,
    /// The models and tags recorded beside the trees.
    seen: Mutex<Seen>,
    _lock: File,
}

/// The paths in the store.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
    /// The descriptions of trees that were read.
    pub(crate) sidecars: Sidecars,
}

impl Store {
    /// Opens the store: creates missing directories, takes the lock, removes unfinished items of an
    /// earlier run, and checks that the store can be written.
    pub fn open(config: Config) -> Result<Self> {
        let root = root(&config.path)?;
        let layout = Layout { root, sidecars: Sidecars::default() };
        let lock = lock(&layout)?;
        prepare(&layout)?;
        metrics::register(config.max_size.as_u64());
        let inner = Inner {
            journal: Journal::open(&layout)?,
            max_size: config.max_size,
            limits: config.limits,
            layouts: config.layouts,
            serving: Mutex::default(),
            claims: Mutex::default(),
            turns: Mutex::default(),
            evicted: Mutex::default(),
            seen: Mutex::default(),
            _lock: lock,
            layout,
        };
        let store = Self { inner: Arc::new(inner) };
        store.refresh_metrics();
        Ok(store)
    }

    /// The store's directory as this process sees it: absolute, without links.
    pub fn path(&self) -> &Path {
        &self.inner.layout.root
    }

    /// The journal.
    pub fn journal(&self) -> Journal {
        self.inner.journal.clone()
    }
}

impl Inner {
    /// Locks the reservations. A poisoned lock is used: no change of them can panic half way.
    pub(crate) fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the models and tags recorded beside the trees; taken before the reservations' lock.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock for unpacking `digest`, the same for all concurrent callers.
    pub(crate) fn turn(&self, digest: Digest) -> Arc<Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(&digest).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Mutex::new(()));
        turns.insert(digest, Arc::downgrade(&turn));
        turn
    }
}

impl Layout {
    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs").join("sha256")
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    pub(crate) fn partials(&self) -> PathBuf {
        self.root.join("partial")
    }

    pub(crate) fn partial(&self, digest: &Digest) -> PathBuf {
        self.partials().join(digest.hex())
    }

    pub(crate) fn trees(&self) -> PathBuf {
        self.root.join("trees")
    }

    pub(crate) fn tree(&self, digest: &Digest) -> PathBuf {
        self.trees().join(digest.hex())
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// Creates `dir` if it is missing, checks that it can be written, and removes unfinished items.
    pub(crate) fn make(&self, dir: &Path) -> Result<()> {
        disk::make_dir(dir)?;
        probe(&self.root, dir)?;
        disk::remove_temporaries(dir)
    }
}

/// The digest that a file of `blobs/`, `partial/` or `trees/` is named after.
pub(crate) fn digest_of(path: &Path) -> Option<Digest> {
    format!("sha256:{}", path.file_name()?.to_str()?.get(..64)?).parse().ok()
}

fn root(path: &Path) -> Result<PathBuf> {
    let wrong = || Error::NotADirectory(path.to_owned());
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => return Err(wrong()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk::make_dir(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(wrong()),
        Err(error) => return Err(Error::io("look at", path, error)),
    }
    fs::canonicalize(path).map_err(|error| Error::io("look at", path, error))
}

fn lock(layout: &Layout) -> Result<File> {
    let path = layout.root.join("lock");
    let not_writable = |source| Error::NotWritable { path: layout.root.clone(), source };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(not_writable)?;
    // Allows a control plane of the same group to take the volume over. The error is ignored: the
    // file may belong to another user.
    let _ = file.set_permissions(fs::Permissions::from_mode(0o664));
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(path)),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, error)),
    }
}

fn prepare(layout: &Layout) -> Result<()> {
    disk::remove_temporaries(&layout.root)?;
    for dir in [layout.blobs(), layout.partials(), layout.trees(), layout.journal()] {
        layout.make(&dir)?;
    }
    tree::remove_unreadable(layout)
}

/// Checks that `dir` can be written, by creating and removing a file: the error should appear at
/// the start, not with the first model. A full disk is only logged, since the content can still be
/// served and evicted.
fn probe(root: &Path, dir: &Path) -> Result<()> {
    let file = disk::temporary(dir);
    let written = disk::write_new(&file, b"probe");
    match written.and(disk::remove(&file)) {
        Err(error @ Error::NoSpace { .. }) => {
            tracing::warn!(path = %dir.display(), %error, "the disk is full");
            Ok(())
        }
        Err(Error::Io { source, .. }) => Err(Error::NotWritable { path: root.to_owned(), source }),
        other => other,
    }
}

#[cfg(test)]
mod tests;
