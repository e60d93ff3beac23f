//! Changes of an object that several processes may change at the same time.

use std::{fs::File, io};

use bytes::Bytes;

use super::{
    Kind, Store,
    local::Local,
    objects::{Failure, Put},
    remote::Remote,
};
use crate::Error;

/// The attempts at a change that others are faster with.
const ATTEMPTS: u32 = 50;

impl Store {
    /// Changes an object as [`replace`](Self::replace) does: `change` makes the new content of the
    /// present one, which is `None` if there is no object. It is called again if another process has
    /// changed the object meanwhile. So no change is lost, unless the directory is on a file system
    /// without locks, or the store of objects has no tags for contents or ignores the condition.
    ///
    /// # Errors
    /// The store failed, or `change` did.
    pub(crate) fn update(
        &self,
        name: &str,
        mut change: impl FnMut(Option<&[u8]>) -> Result<Vec<u8>, Error>,
    ) -> Result<(), Error> {
        let failed = |error: io::Error| Error::store(name, &error);
        match &self.kind {
            Kind::Local(local) => {
                let _lock = lock(local, name).map_err(failed)?;
                let content = change(local.read(name).map_err(failed)?.as_deref())?;
                local.replace(name, &content, true).map_err(failed)
            }
            Kind::Remote(remote) => {
                for _ in 0..ATTEMPTS {
                    let found = read(remote, name).map_err(failed)?;
                    let content = change(found.as_ref().map(|(content, _)| &**content))?;
                    let tag = found.as_ref().map(|(_, tag)| tag.as_deref());
                    if write(remote, name, (tag, content)).map_err(failed)? {
                        return Ok(());
                    }
                }
                let message = "others change it all the time";
                Err(failed(remote.error(Failure::Other(message.to_owned()))))
            }
        }
    }
}

/// A lock that excludes other changes of an object, in other processes too, until it is dropped.
/// A file system without locks is no error.
fn lock(local: &Local, name: &str) -> io::Result<File> {
    let file = local.lock(&format!(".{name}.lock"))?;
    while file.lock().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
    Ok(file)
}

/// The content of an object, with its tag.
fn read(remote: &Remote, name: &str) -> io::Result<Option<(Bytes, Option<String>)>> {
    let key = remote.key(name);
    match remote.patience.call(|| remote.objects.get_tagged(&key)) {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Absent) => Ok(None),
        Err(failure) => Err(remote.error(failure)),
    }
}

/// Writes an object in place of the content with this tag, or of none. Returns false if it has
/// changed.
fn write(
    remote: &Remote,
    name: &str,
    (tag, content): (Option<Option<&str>>, Vec<u8>),
) -> io::Result<bool> {
    let (key, content) = (remote.key(name), Bytes::from(content));
    let put = match tag {
        None => Put::New,
        Some(Some(tag)) => Put::Matching(tag),
        Some(None) => Put::Replace,
    };
    match remote.patience.call(|| remote.objects.put(&key, &content, put)) {
        Ok(()) => Ok(true),
        Err(Failure::Exists | Failure::Changed | Failure::Absent) => Ok(false),
        Err(failure) => Err(remote.error(failure)),
    }
}
