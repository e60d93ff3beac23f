//! The two copies of a journal file.
//!
//! A write replaces the current copy, and then the previous one, each by a synced file under
//! another name and a rename, and returns when both are on disk. So both have what was written
//! last, and damage to one of them loses nothing. After a crash between the two, the current copy
//! has a write that nothing was told of yet, and the previous one the write before.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use super::seal::{seal, unseal};
use crate::{Error, Result, disk, metrics};

/// The size limit of a journal file; real ones are far smaller.
const MAX_SIZE: u64 = 64 << 20;

/// The state of one copy.
enum Copy<T> {
    Good(Vec<u8>, T),
    Missing,
    /// It was renamed, so that it can be examined.
    Damaged,
}

/// Writes both copies of the file `path`; they are on disk when this returns.
pub(super) fn write(path: &Path, content: Vec<u8>) -> Result<()> {
    let sealed = seal(content);
    disk::replace(path, &sealed)?;
    disk::replace(&previous(path), &sealed)
}

/// Reads the file `path`, and the previous copy if the current one is damaged or missing. `None` if
/// there is neither. Damaged copies are renamed, with a warning. In the end both copies are good.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let current = copy::<T>(path)?;
    if let Copy::Good(content, value) = current {
        match disk::read(&previous(path), MAX_SIZE) {
            Ok(Some(same)) if same == content => {}
            _ => mend(&previous(path), &content),
        }
        return Ok(Some(value));
    }
    let previous = copy::<T>(&previous(path))?;
    if let (Copy::Missing, Copy::Missing) = (&current, &previous) {
        return Ok(None);
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let Copy::Good(content, value) = previous else {
        metrics::journal_damaged(&name, metrics::Used::Nothing);
        return Ok(None);
    };
    metrics::journal_damaged(&name, metrics::Used::Previous);
    tracing::warn!(path = %path.display(),
        "a journal file is damaged or missing; continuing with its previous copy");
    mend(path, &content);
    Ok(Some(value))
}

/// The path of the previous copy.
fn previous(path: &Path) -> PathBuf {
    path.with_extension("previous.json")
}

/// Writes a copy again. A failure is only logged: the other copy is good.
fn mend(path: &Path, content: &[u8]) {
    if let Err(error) = disk::replace(path, content) {
        tracing::warn!(path = %path.display(), %error, "cannot write a copy of a journal file");
    }
}

fn copy<T: DeserializeOwned>(path: &Path) -> Result<Copy<T>> {
    let content = match disk::read(path, MAX_SIZE) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Copy::Missing);
        }
        other => other?.unwrap_or_default(),
    };
    let value = unseal(&content).ok_or_else(|| "its checksum does not match".to_owned());
    let value = value.and_then(|it| serde_json::from_slice(it).map_err(|error| error.to_string()));
    match value {
        Ok(value) => Ok(Copy::Good(content, value)),
        Err(error) => {
            set_aside(path, &error);
            Ok(Copy::Damaged)
        }
    }
}

/// Renames a damaged copy, so that it can be examined. A full disk may prevent it.
fn set_aside(path: &Path, error: &str) {
    let aside = path.with_extension("damaged");
    tracing::warn!(path = %path.display(), aside = %aside.display(), %error,
        "a journal file is damaged");
    if let Err(error) = disk::rename(path, &aside) {
        tracing::warn!(path = %path.display(), %error, "cannot rename a damaged journal file");
    }
}
