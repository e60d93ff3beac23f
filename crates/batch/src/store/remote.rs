//! A prefix in a store of objects as a store, with patience while it is away.

use std::{
    io::{self, BufReader},
    ops::Range,
    path::Path,
    sync::Arc,
    thread,
};

use bytes::Bytes;
use outrigger_tables::{ReadAt, Stat};

use super::{
    objects::{Failure, Listed, Objects, Put},
    patience::Patience,
};

/// The bytes that are read at a time of an object that is read from its beginning.
const AHEAD: usize = 4 << 20;
/// The reads that are sent at the same time.
const READS: usize = 16;
/// The attempts at a key that is taken and has no object, because another request for it is not
/// complete.
const ATTEMPTS: u32 = 20;

/// The objects with a prefix.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    /// Its address, for messages.
    pub(super) root: Arc<Path>,
    pub(super) objects: Arc<dyn Objects>,
    /// Empty, or with a slash at its end.
    pub(super) prefix: Arc<str>,
    pub(super) patience: Patience,
}

impl Remote {
    /// The key of the object with this name.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Creates an object unless the key is taken. Returns true if the store has this content now.
    /// An answer may be lost: then the object that is in the way is our own.
    pub(super) fn create(&self, name: &str, content: &Bytes) -> io::Result<bool> {
        let key = self.key(name);
        for _ in 0..ATTEMPTS {
            match self.patience.call(|| self.objects.put(&key, content, Put::New)) {
                Ok(()) => return Ok(true),
                Err(Failure::Exists) => {}
                Err(failure) => return Err(self.error(failure)),
            }
            if let Some(found) = self.read(name)? {
                return Ok(found == *content);
            }
        }
        Err(self.error(Failure::Other("the store refuses to create an object".to_owned())))
    }

    /// Checks that the store keeps an object that is there, by creating it again with its content.
    pub(super) fn check_conditions(&self, name: &str) -> io::Result<()> {
        let Some(content) = self.read(name)? else { return Ok(()) };
        let (key, content) = (self.key(name), Bytes::from(content));
        match self.patience.call(|| self.objects.put(&key, &content, Put::New)) {
            Err(Failure::Exists) => Ok(()),
            Ok(()) => Err(self.error(Failure::Other(
                "the store ignores the condition of a write that an object does not exist: two \
                 workers could both commit the same rows"
                    .to_owned(),
            ))),
            Err(failure) => Err(self.error(failure)),
        }
    }

    pub(super) fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let (key, content) = (self.key(name), Bytes::copy_from_slice(content));
        self.call(|| self.objects.put(&key, &content, Put::Replace))
    }

    pub(super) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.read_range(name, None)
    }

    /// The first bytes of an object, at most `most`.
    pub(super) fn read_start(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        // A range of an empty object is refused.
        match self.size(name)?.map(|size| size.min(most)) {
            None => Ok(None),
            Some(0) => Ok(Some(Vec::new())),
            Some(end) => self.read_range(name, Some(0..end)),
        }
    }

    /// Opens an object; `None` if there is none of this name.
    pub(super) fn open(&self, name: &str) -> io::Result<Option<Object>> {
        match Object::open(Arc::clone(&self.objects), &self.key(name), &self.patience) {
            Ok(object) => Ok(Some(object)),
            Err(Failure::Absent) => Ok(None),
            Err(failure) => Err(self.error(failure)),
        }
    }

    /// The size of an object in bytes; `None` if there is none of this name.
    pub(super) fn size(&self, name: &str) -> io::Result<Option<u64>> {
        let key = self.key(name);
        match self.patience.call(|| self.objects.stat(&key)) {
            Ok(stat) => Ok(Some(stat.size)),
            Err(Failure::Absent) => Ok(None),
            Err(failure) => Err(self.error(failure)),
        }
    }

    fn read_range(&self, name: &str, range: Option<Range<u64>>) -> io::Result<Option<Vec<u8>>> {
        let key = self.key(name);
        match self.patience.call(|| self.objects.get(&key, range.clone(), None)) {
            Ok(content) => Ok(Some(content.into())),
            Err(Failure::Absent) => Ok(None),
            Err(failure) => Err(self.error(failure)),
        }
    }

    /// The contents of several objects, in their order.
    pub(super) fn read_all(&self, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let size = names.len().div_ceil(READS).max(1);
        let read = |names: &[String]| names.iter().map(|name| self.read(name)).collect();
        let parts: Vec<io::Result<Vec<_>>> = thread::scope(|scope| {
            let parts: Vec<_> =
                names.chunks(size).map(|names| scope.spawn(move || read(names))).collect();
            let panicked = |_| Err(io::Error::other("the reading of objects panicked"));
            parts.into_iter().map(|part| part.join().unwrap_or_else(panicked)).collect()
        });
        let parts: Vec<_> = parts.into_iter().collect::<io::Result<_>>()?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// The objects in a directory, and the directories in it.
    pub(super) fn list(&self, directory: &str) -> io::Result<Listed> {
        let prefix = match directory {
            "" => self.prefix.to_string(),
            directory => format!("{}{directory}/", self.prefix),
        };
        let mut listed = self.call(|| self.objects.list(&prefix))?;
        listed.names.sort_unstable();
        listed.directories.sort_unstable();
        Ok(listed)
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        self.list("").map(|listed| listed == Listed::default())
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let key = self.key(name);
        self.call(|| self.objects.remove(&key))
    }

    pub(super) fn call<T>(&self, request: impl FnMut() -> Result<T, Failure>) -> io::Result<T> {
        self.patience.call(request).map_err(|failure| self.error(failure))
    }

    pub(super) fn error(&self, failure: Failure) -> io::Error {
        named(&self.root, failure)
    }
}

/// The failure of a request, with the address that it was about.
fn named(address: &Path, failure: Failure) -> io::Error {
    let message = format!("{}: {failure}", address.display());
    io::Error::new(io::Error::from(failure).kind(), message)
}

/// An object whose content is read in ranges.
#[derive(Debug)]
pub(crate) struct Object {
    objects: Arc<dyn Objects>,
    key: String,
    stat: Stat,
    patience: Patience,
}

impl Object {
    /// Opens the object with this key.
    ///
    /// # Errors
    /// There is none, or the store does not answer or refuses.
    pub(crate) fn open(
        objects: Arc<dyn Objects>,
        key: &str,
        patience: &Patience,
    ) -> Result<Self, Failure> {
        let stat = patience.call(|| objects.stat(key))?;
        Ok(Self { objects, key: key.to_owned(), stat, patience: patience.clone() })
    }

    /// Reads the content from its beginning.
    pub(super) fn reader(self) -> impl io::Read {
        BufReader::with_capacity(AHEAD, FromStart { object: self, at: 0 })
    }
}

/// An object that is read from its beginning, and the bytes that were read.
struct FromStart {
    object: Object,
    at: u64,
}

impl io::Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.object.stat.size - self.at;
        let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if length > 0 {
            buffer[..length].copy_from_slice(&self.object.read_at(self.at, length)?);
            self.at += length as u64;
        }
        Ok(length)
    }
}

impl ReadAt for Object {
    fn stat(&self) -> Stat {
        self.stat.clone()
    }

    fn read_at(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let range: Range<u64> = start..start + length as u64;
        let tag = self.stat.tag.as_deref();
        let bytes = self.patience.call(|| {
            let bytes = self.objects.get(&self.key, Some(range.clone()), tag)?;
            match bytes.len() == length {
                true => Ok(bytes),
                false => Err(Failure::Changed),
            }
        });
        Ok(bytes?)
    }
}
