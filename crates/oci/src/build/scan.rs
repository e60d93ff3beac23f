//! Lists a directory's entries in a fixed order.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{BuildError, OWN_LAYER, origin};

/// A file or directory below the package's directory.
#[derive(Debug)]
pub(super) struct Entry {
    /// The path relative to the package's directory, separated by `/`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// A file's size in bytes; `None` for a directory.
    pub(super) size: Option<u64>,
}

impl Entry {
    pub(super) fn is_file(&self) -> bool {
        self.size.is_some()
    }

    pub(super) fn read(&self) -> Result<Vec<u8>, BuildError> {
        fs::read(&self.path).map_err(BuildError::io(&self.path))
    }

    pub(super) fn is_large(&self) -> bool {
        self.size.is_some_and(|size| size >= OWN_LAYER)
    }
}

/// All entries below `directory`, sorted by name, each directory before its own entries; without the
/// note of its origin.
pub(super) fn scan(directory: &Path) -> Result<Vec<Entry>, BuildError> {
    let mut entries = Vec::new();
    let mut open = vec![(directory.to_owned(), String::new())];
    while let Some((directory, prefix)) = open.pop() {
        for item in fs::read_dir(&directory).map_err(BuildError::io(&directory))? {
            let item = item.map_err(BuildError::io(&directory))?;
            if prefix.is_empty() && item.file_name() == origin::FILE {
                continue;
            }
            let entry = entry(&item, &prefix)?;
            if !entry.is_file() {
                open.push((entry.path.clone(), format!("{}/", entry.name)));
            }
            entries.push(entry);
        }
    }
    sort(&mut entries);
    Ok(entries)
}

/// Sorts entries by name, each directory before its own entries.
pub(super) fn sort(entries: &mut [Entry]) {
    entries.sort_by(|one, other| one.name.split('/').cmp(other.name.split('/')));
}

fn entry(item: &fs::DirEntry, prefix: &str) -> Result<Entry, BuildError> {
    let path = item.path();
    let name = item.file_name().into_string();
    let name = name.map_err(|_| BuildError::Name { path: path.clone() })?;
    let metadata = item.metadata().map_err(BuildError::io(&path))?;
    let size = match metadata.file_type() {
        kind if kind.is_file() => Some(metadata.len()),
        kind if kind.is_dir() => None,
        kind if kind.is_symlink() => {
            return Err(BuildError::Unsupported { path, kind: "a symbolic link" });
        }
        _ => return Err(BuildError::Unsupported { path, kind: "a special file" }),
    };
    Ok(Entry { name: format!("{prefix}{name}"), path, size })
}
