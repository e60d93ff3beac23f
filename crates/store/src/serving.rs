//! Published versions, as the engines see them: `serving/<servable>/<version>` for the default
//! engine, and `serving-<engine>/<servable>/<version>` for any other.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
    sync::PoisonError,
};

use outrigger_core::{Digest, EngineId, ServableId, ServableName, Version};
use serde::{Deserialize, de::IntoDeserializer};

use crate::{
    Error, Result, Store, Tree, disk,
    store::{Layout, digest_of},
};

/// The name of the default engine's directory, and the beginning of the others' names.
const SERVING: &str = "serving";

/// A version that is visible to the engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Published {
    /// The servable's name and version.
    pub id: ServableId,
    /// The image that the model belongs to; `None` for a file of the engine's own.
    pub tree: Option<Digest>,
}

/// The directory of the versions that are published to one engine. Clones share it.
#[derive(Debug, Clone)]
pub struct Serving {
    store: Store,
    directory: PathBuf,
    /// The directory as the engine sees it.
    seen_at: PathBuf,
}

impl Store {
    /// Opens the directory of `engine`, and creates it if it is missing. `store_path` is the
    /// absolute path of the store as the engine sees it, if it differs.
    pub fn serving(&self, engine: &EngineId, store_path: Option<&Path>) -> Result<Serving> {
        let seen_at = store_path.unwrap_or(self.path());
        if !seen_at.is_absolute() {
            return Err(Error::EnginePath(seen_at.to_owned()));
        }
        let name = match engine.is_default() {
            true => SERVING.to_owned(),
            false => format!("{SERVING}-{engine}"),
        };
        let (directory, seen_at) = (self.path().join(&name), seen_at.join(name));
        self.inner.layout.make(&directory)?;
        for servable in disk::list(&directory)?.iter().filter(|path| path.is_dir()) {
            disk::remove_temporaries(servable)?;
        }
        let mut opened = self.inner.serving.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(directory.clone());
        Ok(Serving { store: self.clone(), directory, seen_at })
    }

    /// Removes the directories of engines that this process has not opened: an earlier
    /// configuration had these engines. They hold links to models and files of the engine's
    /// own, and their links would keep models from being deleted.
    pub fn remove_other_servings(&self) -> Result<()> {
        let opened = self.inner.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let _claims = self.inner.claims();
        let all = directories(&self.inner.layout)?;
        for directory in all.iter().filter(|directory| !opened.contains(*directory)) {
            let path = directory.display();
            tracing::info!(%path, "removing the directory of an engine that is not configured");
            disk::remove_tree(directory)?;
        }
        Ok(())
    }
}

impl Serving {
    /// The store that the directory belongs to.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Publishes the tree's model to the engine as this servable, by a relative link, which
    /// resolves wherever the volume is mounted. Succeeds if it is already published so.
    ///
    /// # Errors
    /// [`Error::TreeMissing`] if the tree was removed; [`Error::VersionTaken`] if this version is
    /// published with another content.
    pub fn publish(&self, id: &ServableId, tree: &Tree) -> Result<()> {
        let (dir, path) = self.places(id)?;
        let target = Path::new("../../trees").join(tree.digest().hex()).join(tree.model());
        let _claims = self.store.inner.claims();
        if self.store.tree(tree.digest()).is_none() {
            return Err(Error::TreeMissing(*tree.digest()));
        }
        match fs::read_link(&path) {
            Ok(present) if present == target => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Err(Error::VersionTaken(id.clone())),
        }
        self.store.touch(tree.digest());
        into_place(&dir, &path, |new| {
            symlink(&target, new).map_err(|error| Error::io("link", new, error))
        })
    }

    /// Publishes a directory that holds only `file`, with this content: a version that belongs to
    /// the engine and to no image. Succeeds if such a directory is already published as `id`.
    pub fn publish_file(&self, id: &ServableId, file: &str, content: &[u8]) -> Result<()> {
        let (dir, path) = self.places(id)?;
        let _claims = self.store.inner.claims();
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => return Ok(()),
            Ok(_) => return Err(Error::VersionTaken(id.clone())),
            Err(_) => {}
        }
        into_place(&dir, &path, |new| {
            disk::make_dir(new)?;
            disk::write_new(&new.join(file), content)?;
            disk::sync_dir(new)
        })
    }

    /// Unpublishes this version; succeeds if it is not published. The servable's directory stays,
    /// because the engine must find the base path of every name in its configuration.
    pub fn unpublish(&self, id: &ServableId) -> Result<()> {
        let (_, path) = self.places(id)?;
        let _claims = self.store.inner.claims();
        if let Some(image) = linked_tree(&path) {
            self.store.touch(&image);
        }
        disk::remove_tree(&path)
    }

    /// Removes the directory of a servable, with all its versions, when the name is no longer in
    /// the engine's configuration.
    pub fn remove_servable(&self, name: &ServableName) -> Result<()> {
        let dir = self.servable_dir(name)?;
        let _claims = self.store.inner.claims();
        disk::remove_tree(&dir)
    }

    /// All versions published to the engine, sorted.
    pub fn published(&self) -> Result<Vec<Published>> {
        let mut all = published(&self.directory)?;
        all.sort();
        Ok(all)
    }

    /// The absolute path of a servable's directory as the engine sees it.
    pub fn base_path(&self, name: &ServableName) -> PathBuf {
        self.seen_at.join(name.as_str())
    }

    /// The servable's directory, and the version's path in it.
    fn places(&self, id: &ServableId) -> Result<(PathBuf, PathBuf)> {
        let dir = self.servable_dir(&id.name)?;
        let path = dir.join(id.version.to_string());
        Ok((dir, path))
    }

    /// The servable's directory. The name is checked, because one that was read from a file may be
    /// unsafe.
    fn servable_dir(&self, name: &ServableName) -> Result<PathBuf> {
        let path = Path::new(name.as_str());
        let mut parts = path.components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if plain && !disk::is_temporary(path) {
            return Ok(self.directory.join(path));
        }
        let source = io::Error::from(io::ErrorKind::InvalidFilename);
        Err(Error::Io { action: "use as a servable's name", path: path.to_owned(), source })
    }
}

/// All versions published to any engine, of this process or of an earlier one.
pub(crate) fn all_published(layout: &Layout) -> Result<Vec<Published>> {
    let directories = directories(layout)?;
    let each: Result<Vec<_>> = directories.iter().map(|directory| published(directory)).collect();
    Ok(each?.into_iter().flatten().collect())
}

/// The directories of all engines, of this process or of an earlier one.
fn directories(layout: &Layout) -> Result<Vec<PathBuf>> {
    let is_serving = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix(SERVING);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) && path.is_dir()
    };
    Ok(disk::list(&layout.root)?.into_iter().filter(is_serving).collect())
}

/// The versions of servables in an engine's directory.
fn published(directory: &Path) -> Result<Vec<Published>> {
    let mut all = Vec::new();
    for dir in disk::list(directory)? {
        let visible = dir.is_dir() && !disk::is_temporary(&dir);
        let Some(name) = servable_name(&dir).filter(|_| visible) else { continue };
        for path in disk::list(&dir)? {
            let Some(version) = version(&path) else { continue };
            let id = ServableId { name: name.clone(), version };
            all.push(Published { id, tree: linked_tree(&path) });
        }
    }
    Ok(all)
}

/// Creates an item under a temporary name in `dir` and renames it to `path`.
fn into_place(dir: &Path, path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let known = dir.is_dir();
    disk::make_dir(dir)?;
    if !known {
        disk::sync_dir(dir.parent().expect("it lies in serving/"))?;
    }
    let new = disk::temporary(dir);
    let made = make(&new).and_then(|()| disk::rename(&new, path));
    made.inspect_err(|_| {
        let _ = disk::remove(&new);
    })
}

fn servable_name(dir: &Path) -> Option<ServableName> {
    let name = dir.file_name()?.to_str()?;
    let name: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        name.into_deserializer();
    ServableName::deserialize(name).ok()
}

fn version(path: &Path) -> Option<Version> {
    path.file_name()?.to_str()?.parse().ok().map(Version)
}

/// The image that the link at `path` leads to.
fn linked_tree(path: &Path) -> Option<Digest> {
    let target = fs::read_link(path).ok()?;
    let tree = target.strip_prefix("../../trees").ok()?.components().next()?;
    digest_of(Path::new(tree.as_os_str()))
}

#[cfg(test)]
mod tests;
