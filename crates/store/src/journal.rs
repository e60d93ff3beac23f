//! The journal: state that must survive a restart, in small JSON files. Each has a checksum and two
//! copies, so that a damaged file loses nothing ([`copies`]).
//!
//! # Versions
//! An engine never loads a (name, version) twice, and it may outlive the control plane, the journal
//! and even the volume. A new version is therefore the present time in milliseconds since 1970, or
//! the last version plus one if that is larger. The last version is the largest of those in the
//! journal, in `serving/` and in the desired set; it is written to disk before it is used, if there
//! is room. So a version is never smaller than the time of its creation, and a later one is larger
//! even if journal and volume were lost in between. A number could repeat only if the clock were set
//! back as well.

mod copies;
pub(crate) mod seal;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_core::Version;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Error, Record, Result, serving, store::Layout};

const RECORD: &str = "record.json";
const VERSIONS: &str = "versions.json";
const CANARIES: &str = "canaries.json";
const CRASHES: &str = "crashes.json";

/// The journal. Cheap to clone; all clones are one journal.
#[derive(Debug, Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    layout: Layout,
    /// The last version assigned.
    last: Mutex<i64>,
    /// Serialises writers of the record; holds the content written last.
    written: Mutex<Option<Vec<u8>>>,
    /// The same for the state of the suspected versions.
    crashes: Mutex<Option<Vec<u8>>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Versions {
    last: i64,
}

impl Journal {
    pub(crate) fn open(layout: &Layout) -> Result<Self> {
        let inner = Inner {
            layout: layout.clone(),
            last: Mutex::default(),
            written: Mutex::default(),
            crashes: Mutex::default(),
        };
        let journal = Self { inner: Arc::new(inner) };
        let written = journal.read::<Versions>(VERSIONS)?.map(|versions| versions.last);
        let published = serving::all_published(layout)?.into_iter().map(|published| published.id);
        let desired = journal.load()?.unwrap_or_default().desired.into_iter();
        let desired = desired.map(|desired| desired.servable);
        let seen = published.chain(desired).map(|id| id.version.0).chain(written);
        *journal.inner.last.lock().unwrap_or_else(PoisonError::into_inner) =
            seen.max().unwrap_or(0);
        Ok(journal)
    }

    /// Reads the record; `None` if neither copy is good.
    ///
    /// # Errors
    /// The file system fails.
    pub fn load(&self) -> Result<Option<Record>> {
        self.read(RECORD)
    }

    /// Replaces the record; it is on disk when this returns.
    pub fn save(&self, record: &Record) -> Result<()> {
        let content = serde_json::to_vec_pretty(record).expect("text and numbers only");
        let mut written = self.inner.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.as_ref() != Some(&content) {
            copies::write(&self.path(RECORD), content.clone())?;
            *written = Some(content);
        }
        Ok(())
    }

    /// Reads the canaries' state; the default if neither copy is good.
    ///
    /// # Errors
    /// The file system fails.
    pub fn load_canaries<T: DeserializeOwned + Default>(&self) -> Result<T> {
        Ok(self.read(CANARIES)?.unwrap_or_default())
    }

    /// Replaces the canaries' state; it is on disk when this returns.
    pub fn save_canaries<T: Serialize>(&self, record: &T) -> Result<()> {
        let content = serde_json::to_vec_pretty(record).expect("text and numbers only");
        copies::write(&self.path(CANARIES), content)
    }

    /// Reads the state of the versions suspected of ending the engine; the default if neither copy
    /// is good.
    ///
    /// # Errors
    /// The file system fails.
    pub fn load_crashes<T: DeserializeOwned + Default>(&self) -> Result<T> {
        Ok(self.read(CRASHES)?.unwrap_or_default())
    }

    /// Replaces the state of the suspected versions; it is on disk when this returns.
    pub fn save_crashes<T: Serialize>(&self, record: &T) -> Result<()> {
        let content = serde_json::to_vec_pretty(record).expect("text and numbers only");
        let mut written = self.inner.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        if written.as_ref() != Some(&content) {
            copies::write(&self.path(CRASHES), content.clone())?;
            *written = Some(content);
        }
        Ok(())
    }

    /// Assigns a version that no process has used before. It is written to disk before it is
    /// returned, unless the disk is full: the models in the store must be served then too, and the
    /// clock keeps the number from being used again.
    pub fn next_version(&self) -> Result<Version> {
        let mut last = self.inner.last.lock().unwrap_or_else(PoisonError::into_inner);
        let next = following(*last, now()).ok_or(Error::VersionsExhausted(*last))?;
        let content = serde_json::to_vec(&Versions { last: next }).expect("a number");
        match copies::write(&self.path(VERSIONS), content) {
            Err(error @ Error::NoSpace { .. }) => {
                tracing::warn!(%error, "the disk is full: models in the store are served");
            }
            written => written?,
        }
        *last = next;
        Ok(Version(next))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.inner.layout.journal().join(file)
    }

    fn read<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>> {
        copies::read(&self.path(file))
    }
}

fn following(last: i64, now: i64) -> Option<i64> {
    last.checked_add(1).map(|next| next.max(now))
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
