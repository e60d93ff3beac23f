//! Small steps on the file system that are atomic, durable, and say which path failed.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{Error, Result};

/// Directories: the engine's user reads, a control plane of the same group manages.
pub(crate) const DIR_MODE: u32 = 0o775;
/// Files: readable by everybody, changed by nobody, only ever replaced.
pub(crate) const FILE_MODE: u32 = 0o644;

/// Names starting so are unfinished or on their way out.
const TEMPORARY: &str = ".tmp-";

/// A name in `dir` for something that is not finished, unique in this process.
pub(crate) fn temporary(dir: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{TEMPORARY}{}-{number}", std::process::id()))
}

/// Makes `dir` with its parents, with our mode whatever the umask.
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

/// Makes the entries of `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|file| file.sync_all())
        .map_err(|error| Error::io("sync directory", dir, error))
}

/// Replaces `to` by `from` and makes that durable.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::io("rename to", to, error))?;
    sync_dir(to.parent().expect("a path inside the store has a parent"))
}

/// Writes a new file `path` with its content on the disk.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::create_new(path)?;
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|error| Error::io("write", path, error))
}

/// Puts `content` in the place of `path`, atomically; nothing is left when it fails.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = temporary(path.parent().expect("a path inside the store has a parent"));
    let result = write_new(&temporary, content).and_then(|()| rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Reads all of `path`, which may have `max` bytes; `None` if it has more.
pub(crate) fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max.saturating_add(1)).read_to_end(&mut content))
        .map_err(|error| Error::io("read", path, error))?;
    Ok((content.len() as u64 <= max).then_some(content))
}

/// Removes a file, link or directory with all that is in it; nothing there is fine.
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

/// Removes a directory so that it is never seen half: away from its name first.
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

/// Whether `path` is named as something unfinished.
pub(crate) fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()))
}

/// Removes what a crash left unfinished in `dir`.
pub(crate) fn remove_temporaries(dir: &Path) -> Result<()> {
    for path in list(dir)?.iter().filter(|path| is_temporary(path)) {
        tracing::info!(path = %path.display(), "removing what an earlier run left unfinished");
        remove(path)?;
    }
    Ok(())
}

/// Says that `path` was used now. Only its order of eviction depends on it, so
/// that it may fail.
pub(crate) fn touch(path: &Path) {
    let now = std::time::SystemTime::now();
    if let Err(error) = File::open(path).and_then(|file| file.set_modified(now)) {
        tracing::debug!(path = %path.display(), %error, "cannot note the time of last use");
    }
}
