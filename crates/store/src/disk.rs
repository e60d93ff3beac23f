//! Small file system operations that are atomic and durable, and whose errors name the path.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{Error, Result};

/// The mode of directories: readable by the engine's user, writable for a control plane of the same
/// group.
pub(crate) const DIR_MODE: u32 = 0o775;
/// The mode of files: readable by everybody. Files are never changed, only replaced.
pub(crate) const FILE_MODE: u32 = 0o644;

/// The prefix of names of files and directories that are unfinished or being removed.
const TEMPORARY: &str = ".tmp-";

/// A path in `dir` for something unfinished, unique in this process.
pub(crate) fn temporary(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{TEMPORARY}{}-{number}", std::process::id()))
}

/// Creates `dir` and its parents with our mode, regardless of the umask.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => set_mode(dir, DIR_MODE),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                make_dir(parent)?;
                make_dir(dir)
            }
            _ => Err(Error::io("create directory", dir, error)),
        },
        Err(error) => Err(Error::io("create directory", dir, error)),
    }
}

/// Sets the permission bits of `path`.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| Error::io("set the mode of", path, error))
}

/// Syncs the directory `dir`, so that changes of its entries are durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(|error| Error::io("sync directory", dir, error))
}

/// Renames `from` to `to`, replacing it, and syncs the directory.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::io("rename to", to, error))?;
    sync_dir(to.parent().expect("a path inside the store has a parent"))
}

/// Creates the file `path` with this content and syncs it.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::create_new(path)?;
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|error| Error::io("write", path, error))
}

/// Replaces the file `path` atomically; a failure leaves no temporary file.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = temporary(path.parent().expect("a path inside the store has a parent"));
    let result = write_new(&temporary, content).and_then(|()| rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Reads the file `path`; `None` if it has more than `max` bytes.
pub(crate) fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max.saturating_add(1)).read_to_end(&mut content))
        .map_err(|error| Error::io("read", path, error))?;
    Ok((content.len() as u64 <= max).then_some(content))
}

/// Removes a file, link, or directory with its content. Succeeds if nothing is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let remove = || match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory so that it is never visible half removed: it is renamed first.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let away = temporary(path.parent().expect("a path inside the store has a parent"));
    match fs::rename(path, &away) {
        Ok(()) => remove(&away),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("remove", path, error)),
    }
}

/// The entries of `dir`, sorted by name.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let list = || {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            entries.push(entry?.path());
        }
        entries.sort();
        Ok(entries)
    };
    list().map_err(|error| Error::io("list", dir, error))
}

/// Whether the name of `path` marks it as unfinished.
pub(crate) fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()))
}

/// Removes unfinished files and directories, left by a crash, from `dir`.
pub(crate) fn remove_temporaries(dir: &Path) -> Result<()> {
    for path in list(dir)?.iter().filter(|path| is_temporary(path)) {
        tracing::info!(path = %path.display(), "removing an unfinished item of an earlier run");
        remove(path)?;
    }
    Ok(())
}

/// Sets the time of last use of `path` to now. A failure is only logged, since nothing but the
/// order of eviction depends on the time.
pub(crate) fn touch(path: &Path) {
    let now = std::time::SystemTime::now();
    if let Err(error) = File::open(path).and_then(|file| file.set_modified(now)) {
        tracing::debug!(path = %path.display(), %error, "cannot set the time of last use");
    }
}
