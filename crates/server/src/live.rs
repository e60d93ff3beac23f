//! Values from files that are reloaded when the files change: certificates and tokens.

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

pub(crate) use crate::file_error::FileError;
use crate::metrics;

/// The interval at which files are read. They are few and small, and reading them is reliable on
/// every file system and through every symlink, unlike notifications.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Files with their content.
pub(crate) type Contents = Vec<(PathBuf, Vec<u8>)>;

/// A kind of value that is made from files.
pub(crate) trait Source: Send + Sync + 'static {
    /// The type of the value.
    type Value: Send + Sync + 'static;
    /// The name of the value in logs and metrics.
    const SECRET: metrics::Secret;

    /// Reads the files.
    fn read(&self) -> Result<Contents, FileError>;
    /// Makes the value, if the files are complete and consistent.
    fn make(&self, contents: &Contents) -> Result<Self::Value, FileError>;
    /// Called when a value comes into force.
    fn adopted(&self, _value: &Self::Value) {}
}

/// The latest value whose files were usable.
pub(crate) struct Live<S: Source> {
    source: S,
    value: ArcSwap<S::Value>,
    /// The last state of the files, usable or not, so that each state is tried once.
    seen: Mutex<Look>,
    changes: watch::Sender<()>,
}

/// A state of the files: a hash of their content, or the reason why they cannot be read.
type Look = Result<[u8; 32], FileError>;

impl<S: Source> Live<S> {
    /// Reads the files and makes the first value.
    ///
    /// # Errors
    /// The files are unusable, and there is no earlier value to keep.
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

    /// The value in force. It takes no lock, and does not change while the guard is held.
    pub(crate) fn load(&self) -> Guard<Arc<S::Value>> {
        self.value.load()
    }

    /// The value in force, for longer use than [`Self::load`].
    pub(crate) fn load_full(&self) -> Arc<S::Value> {
        self.value.load_full()
    }

    /// Signals every new value from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn look(&self) {
        let contents = self.source.read();
        let look = look(&contents);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // A second read guards against files that change during the first; the next look reads them
        // again.
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
                tracing::warn!(secret, %error, "changed files cannot be used; the previous ones stay in force");
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

/// Reads one file of at most the largest size of a secret.
pub(crate) fn read(path: &Path) -> Result<(PathBuf, Vec<u8>), FileError> {
    const MOST: u64 = 1 << 20;
    let failed = |error| FileError::new(path, error);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MOST {
        return Err(FileError::new(path, format!("has {length} bytes, more than {MOST}")));
    }
    Ok((path.to_owned(), std::fs::read(path).map_err(failed)?))
}

/// A value whose files are checked for changes at intervals.
pub(crate) trait Watched: Send + Sync {
    /// Reads the files, and adopts the new value if they have changed.
    fn look(&self);
}

impl<S: Source> Watched for Live<S> {
    fn look(&self) {
        self.look();
    }
}

/// Checks the files of all `watched` values at intervals until `end`.
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
