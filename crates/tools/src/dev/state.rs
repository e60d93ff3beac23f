//! The state of a directory's files, by which changes are noticed. It is compared at intervals,
//! because network file systems do not report changes.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::sleep;

/// The interval of comparisons. A directory is whole when two of them find the same state.
const INTERVAL: Duration = Duration::from_millis(500);
/// The most entries of a directory, as of an image (`store.max_entries`).
const ENTRIES: usize = 100_000;

/// The entries below a directory; equal if nothing has changed. `None` while it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State(Option<Vec<Entry>>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    path: PathBuf,
    inode: u64,
    size: u64,
    /// The times of the last change of content and of attributes, in seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Entry {
    fn new(path: PathBuf, metadata: &Metadata) -> Self {
        Self {
            path,
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl State {
    /// The present state of `directory`.
    pub(super) async fn of(directory: &Path) -> Self {
        let directory = directory.to_owned();
        let scan = move || Self(entries(&directory).ok());
        tokio::task::spawn_blocking(scan).await.unwrap_or(Self(None))
    }

    /// The size of the files in bytes.
    pub(super) fn size(&self) -> u64 {
        self.0.iter().flatten().map(|entry| entry.size).sum()
    }

    /// Waits until `directory` has a state other than `before`, and is whole.
    pub(super) async fn after(directory: &Path, before: Option<&Self>) -> Self {
        let mut last = None;
        loop {
            let state = Self::of(directory).await;
            if before != Some(&state) && last.as_ref() == Some(&state) {
                return state;
            }
            last = Some(state);
            sleep(INTERVAL).await;
        }
    }

    /// Waits until `directory` has another state than this one.
    pub(super) async fn changed(&self, directory: &Path) {
        while Self::of(directory).await == *self {
            sleep(INTERVAL).await;
        }
    }
}

/// All entries below `directory`, in order. Those that disappear meanwhile are left out.
fn entries(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = vec![Entry::new(directory.to_owned(), &fs::metadata(directory)?)];
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        let Some(items) = existing(fs::read_dir(&directory))? else { continue };
        for item in items {
            let item = item?;
            let Some(metadata) = existing(item.metadata())? else { continue };
            if metadata.is_dir() {
                open.push(item.path());
            }
            entries.push(Entry::new(item.path(), &metadata));
            if entries.len() > ENTRIES {
                return Err(io::Error::other("too many entries"));
            }
        }
    }
    entries.sort();
    Ok(entries)
}

fn existing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_change_below_a_directory_is_another_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut states = vec![State::of(path).await];
        let mut change = async |change: &dyn Fn()| {
            change();
            let state = State::of(path).await;
            assert_eq!(state, State::of(path).await);
            assert!(!states.contains(&state), "{state:?}");
            states.push(state);
        };
        change(&|| fs::create_dir(path.join("model")).unwrap()).await;
        change(&|| fs::write(path.join("model/a"), "1").unwrap()).await;
        change(&|| fs::rename(path.join("model/a"), path.join("model/b")).unwrap()).await;
        // The same size, and the time of the change is put back.
        let modified = fs::metadata(path.join("model/b")).unwrap().modified().unwrap();
        change(&|| {
            fs::write(path.join("new"), "2").unwrap();
            fs::rename(path.join("new"), path.join("model/b")).unwrap();
            let file = fs::File::open(path.join("model/b")).unwrap();
            file.set_modified(modified).unwrap();
        })
        .await;
        change(&|| fs::remove_dir_all(path).unwrap()).await;
        assert_eq!(states.last(), Some(&State(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_is_whole_when_it_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let first = State::after(path, None).await;
        let file = path.join("file");
        fs::write(&file, "half").unwrap();
        let half = State::of(path).await;
        // A second change follows before the interval has passed.
        let write = async {
            sleep(INTERVAL / 2).await;
            fs::write(&file, "whole").unwrap();
        };
        let (whole, ()) = tokio::join!(State::after(path, Some(&first)), write);
        assert!(whole != half && whole != first);
        assert_eq!(whole, State::of(path).await);
        half.changed(path).await;
    }
}
