//! What has to survive a restart: small JSON files, replaced atomically.
//!
//! # Versions
//! An engine never loads a (name, version) again that it has seen, and it may
//! outlive us, our journal and even our volume. So a new version is the present
//! time in milliseconds since 1970, or one more than the last when that is
//! larger; "the last" is the largest of what the journal holds, what stands in
//! `serving/` and what is desired, and is on the disk before the version is
//! used. Every version is thus at least as large as the moment of its making,
//! and one made later is larger even if journal and volume were lost between:
//! it would take a clock set back as well to use one twice.

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
/// Far more than any of the files has.
const MAX_SIZE: u64 = 64 << 20;

/// The journal. Cheap to clone; all clones are one journal.
#[derive(Debug, Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    /// The last version given out.
    last: Mutex<i64>,
    /// Serialises writers of the record; holds what was written last.
    written: Mutex<Option<Vec<u8>>>,
}

/// What lifecycle knows and has to know again after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What each tag resolved to when last seen: the last known good.
    pub tags: BTreeMap<ModelName, BTreeMap<Tag, Digest>>,
    /// What should be in the engine.
    pub desired: Vec<Desired>,
    /// What each tag named that was tried as a canary and is not wanted any more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<ModelName, BTreeMap<Tag, Digest>>,
    /// What was promoted in place of what the registry names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub promoted: BTreeMap<ModelName, BTreeMap<Tag, Promoted>>,
}

/// A digest that answers for a tag in place of the one that the registry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promoted {
    /// What the registry names; once it names another, that answers.
    pub named: Digest,
    /// What answers.
    pub promoted: Digest,
}

/// One model that should be in the engine, and as what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// The model.
    pub key: ModelKey,
    /// Its name and version in the engine.
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
        let published = serving::published(layout)?.into_iter().map(|published| published.id);
        let desired = journal.load()?.desired.into_iter().map(|desired| desired.servable);
        let seen = published.chain(desired).map(|id| id.version.0).chain(written);
        *journal.inner.last.lock().unwrap_or_else(PoisonError::into_inner) =
            seen.max().unwrap_or(0);
        Ok(journal)
    }

    /// The record as last saved; empty when there is none. One that cannot be
    /// understood is set aside with a warning.
    ///
    /// # Errors
    /// Only when the file system fails.
    pub fn load(&self) -> Result<Record> {
        Ok(self.read(RECORD)?.unwrap_or_default())
    }

    /// Replaces the record, atomically; on the disk when this returns.
    pub fn save(&self, record: &Record) -> Result<()> {
        let content = serde_json::to_vec_pretty(record).expect("text and numbers only");
        let mut written = self.inner.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.as_ref() != Some(&content) {
            disk::replace(&self.path(RECORD), &content)?;
            *written = Some(content);
        }
        Ok(())
    }

    /// What was last saved of canaries; nothing when there is none, or when it
    /// cannot be understood, which sets it aside with a warning.
    ///
    /// # Errors
    /// Only when the file system fails.
    pub fn load_canaries<T: DeserializeOwned + Default>(&self) -> Result<T> {
        Ok(self.read(CANARIES)?.unwrap_or_default())
    }

    /// Replaces what is kept of canaries, atomically; on the disk when this
    /// returns.
    pub fn save_canaries<T: Serialize>(&self, record: &T) -> Result<()> {
        let content = serde_json::to_vec_pretty(record).expect("text and numbers only");
        disk::replace(&self.path(CANARIES), &content)
    }

    /// A version that was never used before, by whomever; noted on the disk
    /// before it is given out.
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

/// Keeps a damaged file for whoever looks into it, out of the way.
fn set_aside(path: &Path, error: &serde_json::Error) -> Result<()> {
    let aside = path.with_extension("damaged");
    tracing::warn!(path = %path.display(), aside = %aside.display(), %error,
        "a journal file is damaged; going on without it");
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
