//! Values made of files, made anew when the files change: certificates, tokens.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::watch,
    task::{JoinError, spawn_blocking},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// How often files are looked at. They are few and small, and reading them is
/// right on every file system and through every symlink, as notifications are not.
const EVERY: Duration = Duration::from_secs(1);

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// Which.
    pub path: PathBuf,
    /// Why not; never what it holds.
    pub problem: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, problem: impl ToString) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string() }
    }
}

/// Files and what they hold.
pub(crate) type Contents = Vec<(PathBuf, Vec<u8>)>;

/// What is read from files.
pub(crate) trait Source: Send + Sync + 'static {
    /// What is made of them.
    type Value: Send + Sync + 'static;
    /// What logs and metrics call it.
    const SECRET: metrics::Secret;

    /// Reads the files.
    fn read(&self) -> Result<Contents, FileError>;
    /// Makes the value, if the files are whole and fit together.
    fn make(&self, contents: &Contents) -> Result<Self::Value, FileError>;
    /// Says that a value is in force from now on.
    fn adopted(&self, _value: &Self::Value) {}
}

/// The newest value whose files could be used.
pub(crate) struct Live<S: Source> {
    source: S,
    value: ArcSwap<S::Value>,
    /// What the files last looked like, usable or not: each state is tried once.
    seen: Mutex<Look>,
    changes: watch::Sender<()>,
}

/// What files look like: a hash of what they hold, or why they cannot be read.
type Look = Result<[u8; 32], FileError>;

impl<S: Source> Live<S> {
    /// The value that the files give now.
    ///
    /// # Errors
    /// They give none: there is nothing to fall back on yet.
    pub(crate) fn open(source: S) -> Result<Self, FileError> {
        let contents = source.read()?;
        let value = source.make(&contents)?;
        source.adopted(&value);
        metrics::secrets_begin(S::SECRET);
        Ok(Self {
            source,
            value: ArcSwap::from_pointee(value),
            seen: Mutex::new(Ok(hash(&contents))),
            changes: watch::Sender::new(()),
        })
    }

    /// The value in force: no lock, and the same for as long as it is held.
    pub(crate) fn load(&self) -> Guard<Arc<S::Value>> {
        self.value.load()
    }

    /// The same, to be kept for longer.
    pub(crate) fn load_full(&self) -> Arc<S::Value> {
        self.value.load_full()
    }

    /// Tells of every value that comes into force from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn look(&self) {
        let contents = self.source.read();
        let look = look(&contents);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Files that change under the reader's eyes are read again later.
        if look == *seen || look != self::look(&self.source.read()) {
            return;
        }
        *seen = look;
        let made = contents.and_then(|contents| self.source.make(&contents));
        let secret = S::SECRET.as_str();
        metrics::secret_reloaded(S::SECRET, made.is_ok());
        match made {
            Ok(value) => {
                self.source.adopted(&value);
                self.value.store(Arc::new(value));
                self.changes.send_replace(());
                tracing::info!(secret, "files have changed and are in force");
            }
            Err(error) => {
                tracing::warn!(secret, %error, "files have changed and cannot be used: the old stay");
            }
        }
    }
}

fn look(contents: &Result<Contents, FileError>) -> Look {
    contents.as_ref().map(hash).map_err(Clone::clone)
}

fn hash(contents: &Contents) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for (path, bytes) in contents {
        for part in [path.as_os_str().as_encoded_bytes(), bytes] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
    }
    hasher.finalize().into()
}

/// Reads one file, which must be no longer than a secret can be.
pub(crate) fn read(path: &Path) -> Result<(PathBuf, Vec<u8>), FileError> {
    const MOST: u64 = 1 << 20;
    let failed = |error| FileError::new(path, error);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MOST {
        return Err(FileError::new(path, format!("has {length} bytes, more than {MOST}")));
    }
    Ok((path.to_owned(), std::fs::read(path).map_err(failed)?))
}

/// Something to be looked at every now and then.
pub(crate) trait Watched: Send + Sync {
    /// Looks at the files, and takes over what has changed.
    fn look(&self);
}

impl<S: Source> Watched for Live<S> {
    fn look(&self) {
        self.look();
    }
}

/// Looks at all of them again and again until `end`.
pub(crate) async fn follow(
    watched: Vec<Arc<dyn Watched>>,
    end: CancellationToken,
) -> Result<(), JoinError> {
    if watched.is_empty() {
        end.cancelled().await;
        return Ok(());
    }
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while end.run_until_cancelled(ticks.tick()).await.is_some() {
        let watched = watched.clone();
        spawn_blocking(move || watched.iter().for_each(|watched| watched.look())).await?;
    }
    Ok(())
}
