//! The place of a job's output: objects with names, in a directory or in a store of objects.
//!
//! An object is there as a whole or not at all, also after a crash at any moment. Everything that
//! decides about rows is created once and never changed.

mod address;
mod cloud;
mod local;
mod objects;
mod patience;
mod remote;
mod tables;
mod update;
mod upload;

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

pub(crate) use self::{
    address::{Address, is_address},
    remote::Object,
};
use self::{
    local::{Local, NewFile},
    remote::Remote,
    upload::{PART, Upload},
};
pub use self::{
    objects::{Failure, Listed, Objects, Put},
    patience::Patience,
};
use crate::Error;

/// A place with objects. Clones share it. Its calls block; those of a store that is away wait for
/// it.
#[derive(Clone)]
pub struct Store {
    kind: Kind,
    patience: Patience,
    observer: Arc<Observer>,
}

#[derive(Debug, Clone)]
enum Kind {
    Local(Local),
    Remote(Remote),
}

/// Called with the name of each step before a store takes it.
type Observer = dyn Fn(&str) + Send + Sync;

/// An object that is being written. Dropping it removes it.
pub struct NewObject {
    store: Store,
    name: String,
    content: Content,
}

enum Content {
    File(NewFile),
    Upload(Upload),
}

impl Store {
    /// The objects at a location: a directory, or the address of a prefix in a store of objects,
    /// such as `s3://bucket/prefix`, with the credentials of the process's environment.
    ///
    /// # Errors
    /// The address is not valid, or the environment's settings are not.
    ///
    /// # Panics
    /// At an address, if rustls has no provider of cryptography.
    pub fn at(location: &Path) -> Result<Self, Error> {
        let Some(address) = Address::of(location).map_err(Error::usage)? else {
            return Ok(Self::local(location));
        };
        let objects = address.objects().map_err(Error::usage)?;
        Ok(Self::over(objects, &address, Patience::default()))
    }

    /// The objects below the directory `root`, which is created with the first object.
    pub fn local(root: impl Into<PathBuf>) -> Self {
        let root: PathBuf = root.into();
        Self::of(Kind::Local(Local::new(root.into())), Patience::default())
    }

    /// For tests: the objects of `objects` with a prefix, at an address that is only shown.
    pub fn in_objects(objects: Arc<dyn Objects>, prefix: &str, patience: Patience) -> Self {
        Self::over(objects, &Address::shown(prefix), patience)
    }

    fn over(objects: Arc<dyn Objects>, address: &Address, patience: Patience) -> Self {
        let prefix = match address.key.as_str() {
            "" => String::new(),
            key => format!("{key}/"),
        };
        let root: PathBuf = address.to_string().into();
        let (root, prefix) = (root.into(), prefix.into());
        let remote = Remote { root, objects, prefix, patience: patience.clone() };
        Self::of(Kind::Remote(remote), patience)
    }

    fn of(kind: Kind, patience: Patience) -> Self {
        Self { kind, patience, observer: Arc::new(|_| {}) }
    }

    /// The same objects. `observer` is called with the name of each step before it is taken, so that
    /// a test can end the process there.
    #[must_use]
    pub fn observed(self, observer: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { observer: Arc::new(observer), ..self }
    }

    /// The directory, or the address of the prefix.
    pub fn root(&self) -> &Path {
        match &self.kind {
            Kind::Local(local) => &local.root,
            Kind::Remote(remote) => &remote.root,
        }
    }

    /// The patience with which calls wait for the store.
    pub(crate) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// The most bytes in memory of an object that is being written.
    pub(crate) fn buffer(&self) -> u64 {
        match &self.kind {
            Kind::Local(_) => 0,
            Kind::Remote(_) => PART as u64,
        }
    }

    fn step(&self, name: &str, step: &str) {
        (self.observer)(&format!("{name}: {step}"));
    }

    /// Creates an object, durably, unless there is one of this name. Returns true if it was created.
    /// In a store of objects it is one request, however large it is: a write in parts has no
    /// condition.
    ///
    /// # Errors
    /// The store failed.
    pub fn create(&self, name: &str, content: &[u8]) -> io::Result<bool> {
        let Kind::Remote(remote) = &self.kind else {
            let mut object = self.begin(name)?;
            object.write_all(content)?;
            return object.finish();
        };
        self.step(name, "put");
        let is_new = remote.create(name, &Bytes::copy_from_slice(content))?;
        self.step(name, "done");
        Ok(is_new)
    }

    /// Checks that the store does not replace the object with this name when it is created again.
    ///
    /// # Errors
    /// It does, or it failed.
    pub(crate) fn check_conditions(&self, name: &str) -> io::Result<()> {
        match &self.kind {
            Kind::Local(_) => Ok(()),
            Kind::Remote(remote) => remote.check_conditions(name),
        }
    }

    /// Begins an object. It is there after [`NewObject::finish`].
    ///
    /// # Errors
    /// The store failed.
    pub fn begin(&self, name: &str) -> io::Result<NewObject> {
        self.step(name, "begin");
        let content = match &self.kind {
            Kind::Local(local) => Content::File(local.begin(name)?),
            Kind::Remote(remote) => Content::Upload(Upload::new(remote, name)),
        };
        Ok(NewObject { store: self.clone(), name: name.to_owned(), content })
    }

    /// Creates or replaces an object, durably.
    ///
    /// # Errors
    /// The store failed.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.put(name, content, true)
    }

    /// Creates or replaces an object. A crash of the machine may leave it empty or damaged: for what
    /// is written each second, and is left out if it cannot be read.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn replace_loosely(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.put(name, content, false)
    }

    fn put(&self, name: &str, content: &[u8], is_durable: bool) -> io::Result<()> {
        match &self.kind {
            Kind::Local(local) => local.replace(name, content, is_durable),
            Kind::Remote(remote) => remote.replace(name, content),
        }
    }

    /// The content of an object; `None` if there is none of this name.
    ///
    /// # Errors
    /// The store failed.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match &self.kind {
            Kind::Local(local) => local.read(name),
            Kind::Remote(remote) => remote.read(name),
        }
    }

    /// The contents of several objects, in their order. Those of a store of objects are read at the
    /// same time.
    ///
    /// # Errors
    /// The store failed.
    pub fn read_all(&self, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
        match &self.kind {
            Kind::Local(local) => names.iter().map(|name| local.read(name)).collect(),
            Kind::Remote(remote) => remote.read_all(names),
        }
    }

    /// The first bytes of an object, at most `most`; `None` if there is none of this name.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn read_start(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        match &self.kind {
            Kind::Local(local) => local.read_start(name, most),
            Kind::Remote(remote) => remote.read_start(name, most),
        }
    }

    /// The content of an object from its beginning; `None` if there is none of this name.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn reader(&self, name: &str) -> io::Result<Option<Box<dyn io::Read>>> {
        Ok(match &self.kind {
            Kind::Local(local) => local.open(name)?.map(|file| Box::new(file) as _),
            Kind::Remote(remote) => remote.open(name)?.map(|object| Box::new(object.reader()) as _),
        })
    }

    /// True if there is an object of this name.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn exists(&self, name: &str) -> io::Result<bool> {
        match &self.kind {
            Kind::Local(local) => local.exists(name),
            Kind::Remote(remote) => remote.size(name).map(|size| size.is_some()),
        }
    }

    /// The names of the objects in `directory`, without it, in order.
    ///
    /// # Errors
    /// The store failed.
    pub fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        match &self.kind {
            Kind::Local(local) => local.list(directory),
            Kind::Remote(remote) => remote.list(directory).map(|listed| listed.names),
        }
    }

    /// The places in the directories of this one, in order.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn directories(&self) -> io::Result<Vec<Self>> {
        let names = match &self.kind {
            Kind::Local(local) => local.directories()?,
            Kind::Remote(remote) => remote.list("")?.directories,
        };
        Ok(names.iter().map(|name| self.below(name)).collect())
    }

    fn below(&self, name: &str) -> Self {
        let root: Arc<Path> = self.root().join(name).into();
        let kind = match &self.kind {
            Kind::Local(_) => Kind::Local(Local::new(root)),
            Kind::Remote(remote) => {
                let prefix = format!("{}{name}/", remote.prefix).into();
                Kind::Remote(Remote { root, prefix, ..remote.clone() })
            }
        };
        Self { kind, ..self.clone() }
    }

    /// True if there are no objects, and nothing else beside files that were never finished.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        match &self.kind {
            Kind::Local(local) => local.is_empty(),
            Kind::Remote(remote) => remote.is_empty(),
        }
    }

    /// Removes an object. It is no error if there is none.
    ///
    /// # Errors
    /// The store failed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.step(name, "remove");
        match &self.kind {
            Kind::Local(local) => local.remove(name),
            Kind::Remote(remote) => remote.remove(name),
        }
    }

    /// Removes the files of `directory` that were begun and never finished. A store of objects does
    /// not show them.
    ///
    /// # Errors
    /// The file system failed.
    pub fn sweep(&self, directory: &str) -> io::Result<()> {
        match &self.kind {
            Kind::Local(local) => local.sweep(directory),
            Kind::Remote(_) => Ok(()),
        }
    }
}

impl NewObject {
    /// Completes the object, durably, unless there is one of this name. Returns true if it was
    /// created. A large object in a store of objects replaces one of its name, so its name must be
    /// its own; [`Store::create`] replaces nothing.
    ///
    /// # Errors
    /// The store failed.
    pub fn finish(self) -> io::Result<bool> {
        let Self { store, name, content } = self;
        let step = |step: &str| store.step(&name, step);
        let is_new = match content {
            Content::File(file) => file.finish(step)?,
            Content::Upload(upload) => upload.finish(step)?,
        };
        step("done");
        Ok(is_new)
    }
}

impl Write for NewObject {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match &mut self.content {
            Content::File(file) => file.write(data),
            Content::Upload(upload) => upload.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.content {
            Content::File(file) => file.flush(),
            Content::Upload(upload) => upload.flush(),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.root()).finish()
    }
}

impl fmt::Debug for NewObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewObject").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests;
