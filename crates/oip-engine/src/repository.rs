//! The model repository of the servers, to which models of packages are published.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use outrigger_core::{Digest, Failure, Reason};

use crate::{
    code,
    framework::invalid,
    names::{self, FILES},
};

/// The file in each published directory, with the digest of its package. Directories without it
/// belong to others and are left alone.
const MARK: &str = ".outrigger";
/// The beginning of the names of directories that are being written or removed. Servers ignore
/// names with a point at the beginning.
const UNFINISHED: &str = ".outrigger-";
/// The digits of the digest in a published name: enough that two packages of one name differ.
const DIGITS: usize = 16;
/// The most bytes of a file in which names are replaced.
const MAX_FILE: u64 = 4 << 20;
/// The deepest directory of a model.
const DEEPEST: usize = 32;

/// A directory that the servers read models from, on a volume that they share with this process.
/// All of its operations block.
#[derive(Debug)]
pub(crate) struct Repository {
    root: PathBuf,
    changing: Mutex<()>,
}

impl Repository {
    /// The repository in `root`, which is created if it is not there.
    pub(crate) fn open(root: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&root)?;
        Ok(Self { root, changing: Mutex::default() })
    }

    /// Keeps others from publishing and removing meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the models of a package, which are directories in `models`, each as a whole.
    /// Returns their published names in the same order. Models that are there already stay.
    ///
    /// # Errors
    /// IMAGE_INVALID if a model is at fault, STORE_FULL, or INTERNAL.
    pub(crate) fn publish(
        &self,
        models: &Path,
        carried: &[Arc<str>],
        digest: Digest,
    ) -> Result<Vec<Arc<str>>, Failure> {
        let published: Vec<Arc<str>> = carried.iter().map(|name| published(name, digest)).collect();
        let names = carried.iter().cloned().zip(published.iter().cloned()).collect();
        for (name, published) in carried.iter().zip(&published) {
            self.publish_one(&models.join(&**name), (name, published), digest, &names)?;
        }
        Ok(published)
    }

    fn publish_one(
        &self,
        model: &Path,
        (name, published): (&str, &str),
        digest: Digest,
        names: &names::Published,
    ) -> Result<(), Failure> {
        let place = self.root.join(published);
        if place.exists() {
            return match self.digest_of(&place) {
                Some(found) if found == digest => Ok(()),
                _ => Err(internal(&place, "is there, and was not published by Outrigger")),
            };
        }
        let staging = self.root.join(format!("{UNFINISHED}{published}"));
        remove(&staging)?;
        copy(model, &staging, DEEPEST)?;
        for (file, rewrite) in FILES {
            if let Some(text) = read(&model.join(file))? {
                let text = rewrite(&text, name, names)
                    .map_err(|problem| invalid(format!("{name}/{file}: {problem}")))?;
                write(&staging.join(file), text.as_bytes())?;
            }
        }
        code::separate(&staging, published)?;
        write(&staging.join(MARK), digest.to_string().as_bytes())?;
        sync(&staging)?;
        fs::rename(&staging, &place).map_err(|error| failed(&place, error))?;
        sync(&self.root)
    }

    /// Removes all directories that were published for `digest`.
    pub(crate) fn remove(&self, digest: Digest) -> Result<(), Failure> {
        self.remove_if(|found| *found == digest).map(drop)
    }

    /// Removes all published directories but those for `digests`, and what was left unfinished.
    /// Returns the names of the models.
    pub(crate) fn keep(&self, digests: &BTreeSet<Digest>) -> Result<Vec<Arc<str>>, Failure> {
        self.remove_if(|digest| !digests.contains(digest))
    }

    fn remove_if(&self, is_meant: impl Fn(&Digest) -> bool) -> Result<Vec<Arc<str>>, Failure> {
        let failed = |error| failed(&self.root, error);
        let mut removed = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(name) = entry.file_name().to_str().map(Arc::<str>::from) else { continue };
            let path = entry.path();
            if name.starts_with(UNFINISHED) {
                remove(&path)?;
            } else if self.digest_of(&path).as_ref().is_some_and(&is_meant) {
                // No server finds a part of it.
                let hidden = self.root.join(format!("{UNFINISHED}{name}"));
                remove(&hidden)?;
                fs::rename(&path, &hidden).map_err(failed)?;
                remove(&hidden)?;
                removed.push(name);
            }
        }
        Ok(removed)
    }

    /// True if the models of a package with this digest are there.
    pub(crate) fn has(&self, carried: &[Arc<str>], digest: Digest) -> bool {
        let place = |name: &Arc<str>| self.root.join(&*published(name, digest));
        carried.iter().all(|name| self.digest_of(&place(name)) == Some(digest))
    }

    fn digest_of(&self, place: &Path) -> Option<Digest> {
        fs::read_to_string(place.join(MARK)).ok()?.parse().ok()
    }
}

/// The name under which a model of a package is published: its own with a part of the digest, so
/// that versions are there beside each other.
pub(crate) fn published(name: &str, digest: Digest) -> Arc<str> {
    format!("{name}-{}", &digest.hex()[..DIGITS]).into()
}

/// Makes `to` a copy of a directory. Files are links to the same content where that is possible;
/// symbolic links are followed, which the store has checked.
fn copy(from: &Path, to: &Path, depth: usize) -> Result<(), Failure> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(invalid(format!("{}: directories are too deep", from.display())));
    };
    fs::create_dir(to).map_err(|error| failed(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| failed(from, error))? {
        let entry = entry.map_err(|error| failed(from, error))?;
        let path = fs::canonicalize(entry.path()).map_err(|error| failed(from, error))?;
        let place = to.join(entry.file_name());
        if path.is_dir() {
            copy(&path, &place, depth)?;
        } else if fs::hard_link(&path, &place).is_err() {
            let copied = fs::copy(&path, &place).and_then(|_| File::open(&place)?.sync_all());
            copied.map_err(|error| failed(&place, error))?;
        }
    }
    sync(to)
}

/// The text of a file, if it is there.
pub(crate) fn read(file: &Path) -> Result<Option<String>, Failure> {
    let too_large = |size: u64| invalid(format!("{}: {size} bytes are too large", file.display()));
    match fs::metadata(file) {
        Err(_) => Ok(None),
        Ok(metadata) if metadata.len() > MAX_FILE => Err(too_large(metadata.len())),
        Ok(_) => match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(invalid(format!("{} is not in UTF-8", file.display())))
            }
            text => text.map(Some).map_err(|error| failed(file, error)),
        },
    }
}

/// Writes a new file in place of one that may be a link to the content of the store.
pub(crate) fn write(file: &Path, content: &[u8]) -> Result<(), Failure> {
    remove(file)?;
    let written = fs::write(file, content).and_then(|()| File::open(file)?.sync_all());
    written.map_err(|error| failed(file, error))
}

/// Removes a file, or a directory with its content, if it is there.
fn remove(path: &Path) -> Result<(), Failure> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    removed.map_err(|error| failed(path, error))
}

fn sync(directory: &Path) -> Result<(), Failure> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| failed(directory, error))
}

pub(crate) fn failed(path: &Path, error: io::Error) -> Failure {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let message = format!("{}: {error}", path.display());
    Failure::new(if is_full { Reason::StoreFull } else { Reason::Internal }, message)
}

fn internal(path: &Path, problem: &str) -> Failure {
    Failure::new(Reason::Internal, format!("{} {problem}", path.display()))
}

#[cfg(test)]
mod tests;
