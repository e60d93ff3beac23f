//! Published versions, as the engine sees them: `serving/<servable>/<version>`.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

use outrigger_core::{Digest, ServableId, ServableName, Version};
use serde::{Deserialize, de::IntoDeserializer};

use crate::{
    Error, Result, Store, Tree, disk,
    store::{Inner, Layout, digest_of},
};

/// A version that is visible to the engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Published {
    /// The servable's name and version.
    pub id: ServableId,
    /// The image that the model belongs to; `None` for a file of the engine's own.
    pub tree: Option<Digest>,
}

impl Store {
    /// Publishes the tree's model to the engine as this servable, by a relative link, which
    /// resolves wherever the volume is mounted. Succeeds if it is already published so.
    ///
    /// # Errors
    /// [`Error::TreeMissing`] if the tree was removed; [`Error::VersionTaken`] if this version is
    /// published with another content.
    pub fn publish(&self, id: &ServableId, tree: &Tree) -> Result<()> {
        let layout = &self.inner.layout;
        let (dir, path) = places(layout, id)?;
        let target = Path::new("../../trees").join(tree.digest().hex()).join(tree.model());
        let _claims = self.inner.claims();
        if self.tree(tree.digest()).is_none() {
            return Err(Error::TreeMissing(*tree.digest()));
        }
        match fs::read_link(&path) {
            Ok(present) if present == target => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Err(Error::VersionTaken(id.clone())),
        }
        self.touch(tree.digest());
        into_place(&dir, &path, |new| {
            symlink(&target, new).map_err(|error| Error::io("link", new, error))
        })
    }

    /// Publishes a directory that holds only `file`, with this content: a version that belongs to
    /// the engine and to no image. Succeeds if such a directory is already published as `id`.
    pub fn publish_file(&self, id: &ServableId, file: &str, content: &[u8]) -> Result<()> {
        let (dir, path) = places(&self.inner.layout, id)?;
        let _claims = self.inner.claims();
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
        let (_, path) = places(&self.inner.layout, id)?;
        let _claims = self.inner.claims();
        if let Some(image) = linked_tree(&path) {
            self.touch(&image);
        }
        disk::remove_tree(&path)
    }

    /// Removes the directory of a servable, with all its versions, when the name is no longer in
    /// the engine's configuration.
    pub fn remove_servable(&self, name: &ServableName) -> Result<()> {
        let dir = servable_dir(&self.inner.layout, name)?;
        let _claims = self.inner.claims();
        disk::remove_tree(&dir)
    }

    /// All published versions, sorted.
    pub fn published(&self) -> Result<Vec<Published>> {
        self.inner.published()
    }

    /// The absolute path of a servable's directory as the engine sees it.
    pub fn base_path(&self, name: &ServableName) -> PathBuf {
        self.inner.engine_path.join("serving").join(name.as_str())
    }
}

impl Inner {
    pub(crate) fn published(&self) -> Result<Vec<Published>> {
        published(&self.layout)
    }
}

/// All versions of servables in `serving/`, sorted.
pub(crate) fn published(layout: &Layout) -> Result<Vec<Published>> {
    let mut all = Vec::new();
    for dir in disk::list(&layout.serving())? {
        let visible = dir.is_dir() && !disk::is_temporary(&dir);
        let Some(name) = servable_name(&dir).filter(|_| visible) else { continue };
        for path in disk::list(&dir)? {
            let Some(version) = version(&path) else { continue };
            let id = ServableId { name: name.clone(), version };
            all.push(Published { id, tree: linked_tree(&path) });
        }
    }
    all.sort();
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

/// The servable's directory, and the version's path in it.
fn places(layout: &Layout, id: &ServableId) -> Result<(PathBuf, PathBuf)> {
    let dir = servable_dir(layout, &id.name)?;
    let path = dir.join(id.version.to_string());
    Ok((dir, path))
}

/// The servable's directory. The name is checked, because one that was read from a file may be
/// unsafe.
fn servable_dir(layout: &Layout, name: &ServableName) -> Result<PathBuf> {
    let path = Path::new(name.as_str());
    let mut parts = path.components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if plain && !disk::is_temporary(path) {
        return Ok(layout.serving().join(path));
    }
    let source = io::Error::from(io::ErrorKind::InvalidFilename);
    Err(Error::Io { action: "use as a servable's name", path: path.to_owned(), source })
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
