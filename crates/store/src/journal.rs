//! The journal: state that must survive a restart, in small JSON files, replaced atomically.
//!
//! # Versions
//! An engine never loads a (name, version) twice, and it may outlive the control plane, the journal
//! and even the volume. A new version is therefore the present time in milliseconds since 1970, or
//! the last version plus one if that is larger. The last version is the largest of those in the
//! journal, in `serving/` and in the desired set; it is written to disk before it is used. So a
//! version is never smaller than the time of its creation, and a later one is larger even if
//! journal and volume were lost in between. A number could repeat only if the clock were set back
//! as well.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_core::{Digest, EngineId, ModelKey, ModelName, ServableId, Tag, Version};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Error, Result, disk, serving, store::Layout};

const RECORD: &str = "record.json";
const VERSIONS: &str = "versions.json";
const CANARIES: &str = "canaries.json";
/// The size limit of a journal file; real ones are far smaller.
const MAX_SIZE: u64 = 64 << 20;

/// The journal. Cheap to clone; all clones are one journal.
#[derive(Debug, Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    /// The last version assigned.
    last: Mutex<i64>,
    /// Serialises writers of the record; holds the content written last.
    written: Mutex<Option<Vec<u8>>>,
}

/// The state of lifecycle that must survive a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The digest that each tag last resolved to: the last known good.
    pub tags: BTreeMap<ModelName, BTreeMap<Tag, Digest>>,
    /// The versions that should be loaded in the engine.
    pub desired: Vec<Desired>,
    /// The rejected canary of each tag: the digest that the tag named when it was rejected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<ModelName, BTreeMap<Tag, Digest>>,
    /// Promotions that are in force although the registry's tag still names another digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub promoted: BTreeMap<ModelName, BTreeMap<Tag, Promoted>>,
}

/// A digest that serves a tag instead of the one that the registry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promoted {
    /// The digest that the registry's tag names. The promotion ends when the tag names another one.
    pub named: Digest,
    /// The digest that serves the tag.
    pub promoted: Digest,
}

/// A model that should be loaded in the engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// The model.
    pub key: ModelKey,
    /// Its servable in the engine.
    pub servable: ServableId,
    /// The engine. Left out for the default one, as older versions know no other.
    #[serde(default, skip_serializing_if = "EngineId::is_default")]
    pub engine: EngineId,
}

#[derive(Debug, Serialize, Deserialize)]
struct Versions {
    last: i64,
}

impl Journal {
    pub(crate) fn open(layout: &Layout) -> Result<Self> {
        let dir = layout.journal();
        let journal = Self {
            inner: Arc::new(Inner { dir, last: Mutex::default(), written: Mutex::default() }),
        };
        let written = journal.read::<Versions>(VERSIONS)?.map(|versions| versions.last);
        let published = serving::all_published(layout)?.into_iter().map(|published| published.id);
        let desired = journal.load()?.desired.into_iter().map(|desired| desired.servable);
        let seen = published.chain(desired).map(|id| id.version.0).chain(written);
        *journal.inner.last.lock().unwrap_or_else(PoisonError::into_inner) =
            seen.max().unwrap_or(0);
        Ok(journal)
    }

    /// Reads the record; empty if there is none. A malformed file is renamed, with a warning, and
    /// counts as none.
    ///
    /// # Errors
    /// The file system fails.
    pub fn load(&self) -> Result<Record> {
        Ok(self.read(RECORD)?.unwrap_or_default())
    }

    /// Replaces the record atomically; it is on disk when this returns.
    pub fn save(&self, record: &Record) -> Result<()> {
        let content = serde_json::to_vec_pretty(record).expect("text and numbers only");
        let mut written = self.inner.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.as_ref() != Some(&content) {
            disk::replace(&self.path(RECORD), &content)?;
            *written = Some(content);
        }
        Ok(())
    }

    /// Reads the canaries' state; the default if there is none. A malformed file is renamed, with a
    /// warning, and counts as none.
    ///
    /// # Errors
    /// The file system fails.
    pub fn load_canaries<T: DeserializeOwned + Default>(&self) -> Result<T> {
        Ok(self.read(CANARIES)?.unwrap_or_default())
    }

    /// Replaces the canaries' state atomically; it is on disk when this returns.
    pub fn save_canaries<T: Serialize>(&self, record: &T) -> Result<()> {
        let content = serde_json::to_vec_pretty(record).expect("text and numbers only");
        disk::replace(&self.path(CANARIES), &content)
    }

    /// Assigns a version that no process has used before. It is written to disk before it is
    /// returned.
    pub fn next_version(&self) -> Result<Version> {
        let mut last = self.inner.last.lock().unwrap_or_else(PoisonError::into_inner);
        let next = following(*last, now()).ok_or(Error::VersionsExhausted(*last))?;
        let content = serde_json::to_vec(&Versions { last: next }).expect("a number");
        disk::replace(&self.path(VERSIONS), &content)?;
        *last = next;
        Ok(Version(next))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.inner.dir.join(file)
    }

    fn read<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>> {
        let path = self.path(file);
        let content = match disk::read(&path, MAX_SIZE) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            other => other?.unwrap_or_default(),
        };
        match serde_json::from_slice(&content) {
            Ok(value) => Ok(Some(value)),
            Err(error) => set_aside(&path, &error).map(|()| None),
        }
    }
}

/// Renames a malformed file, so that it can be examined.
fn set_aside(path: &Path, error: &serde_json::Error) -> Result<()> {
    let aside = path.with_extension("damaged");
    tracing::warn!(path = %path.display(), aside = %aside.display(), %error,
        "a journal file is malformed; continuing without it");
    disk::rename(path, &aside)
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
