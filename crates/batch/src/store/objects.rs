//! The requests that a store of objects answers, each one alone and at once.

use std::{fmt, io, ops::Range};

use bytes::Bytes;
use outrigger_tables::Stat;

/// A store of objects with keys, as S3 is. Each call is one request: it does not wait for a store
/// that is away. Calls block.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Writes an object as a whole.
    ///
    /// # Errors
    /// [`Failure::Exists`] for [`Put::New`] if there is one with this key; [`Failure::Changed`] for
    /// [`Put::Matching`] if its content is another.
    fn put(&self, key: &str, content: &Bytes, put: Put<'_>) -> Result<(), Failure>;

    /// The content of an object, or a range of it. If `tag` is given, the content must be that one.
    ///
    /// # Errors
    /// [`Failure::Absent`] if there is no such object; [`Failure::Changed`] if it has another tag.
    fn get(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        tag: Option<&str>,
    ) -> Result<Bytes, Failure>;

    /// The content of an object, and the tag for [`Put::Matching`]; `None` if the store has none.
    ///
    /// # Errors
    /// [`Failure::Absent`] if there is no such object.
    fn get_tagged(&self, key: &str) -> Result<(Bytes, Option<String>), Failure>;

    /// The size, the time and the tag of an object.
    ///
    /// # Errors
    /// [`Failure::Absent`] if there is no such object.
    fn stat(&self, key: &str) -> Result<Stat, Failure>;

    /// The objects whose keys begin with `prefix`, which is empty or ends with a slash, up to the
    /// next slash.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn list(&self, prefix: &str) -> Result<Listed, Failure>;

    /// All keys that begin with `prefix`, as [`list`](Self::list) takes it.
    ///
    /// # Errors
    /// As those of [`list`](Self::list).
    fn list_all(&self, prefix: &str) -> Result<Vec<String>, Failure>;

    /// Removes an object. It is no error if there is none.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn remove(&self, key: &str) -> Result<(), Failure>;

    /// Begins an object in parts. Returns the name of the upload.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn begin_parts(&self, key: &str) -> Result<String, Failure>;

    /// Writes a part, counted from 0. Returns its name. The same part may be written again.
    ///
    /// # Errors
    /// [`Failure::Absent`] if there is no such upload.
    fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: usize,
        content: &Bytes,
    ) -> Result<String, Failure>;

    /// Makes an object of the parts with these names.
    ///
    /// # Errors
    /// [`Failure::Absent`] if there is no such upload.
    fn finish_parts(&self, key: &str, upload: &str, parts: &[String]) -> Result<(), Failure>;

    /// Removes an upload that is not finished.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    fn abort_parts(&self, key: &str, upload: &str) -> Result<(), Failure>;
}

/// The way in which an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put<'a> {
    /// Only if there is none with this key.
    New,
    /// In place of one with this key.
    Replace,
    /// In place of the content with this tag.
    Matching(&'a str),
}

/// Keys, and the parts of keys up to the next slash, both without the prefix that was listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// The rests of keys that have no further slash.
    pub names: Vec<String>,
    /// The rests of keys up to the next slash, without it, each once.
    pub directories: Vec<String>,
}

/// The reason why a store has not done what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no such object, upload or bucket.
    #[error("there is no such object or bucket")]
    Absent,
    /// There is no bucket of this name.
    #[error("the bucket {0} does not exist")]
    NoBucket(String),
    /// There is such an object already.
    #[error("it exists already")]
    Exists,
    /// The object has another content.
    #[error("it has changed since it was opened")]
    Changed,
    /// The store cannot be reached or has too much work. It may answer later.
    #[error("the store does not answer: {0}")]
    Away(String),
    /// The store refuses the credentials, or there are none.
    #[error("the store refuses the credentials: {0}")]
    Refused(String),
    /// Another failure.
    #[error("{0}")]
    Other(String),
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        let kind = match failure {
            Failure::Absent | Failure::NoBucket(_) => io::ErrorKind::NotFound,
            Failure::Exists => io::ErrorKind::AlreadyExists,
            Failure::Away(_) => io::ErrorKind::TimedOut,
            Failure::Refused(_) => io::ErrorKind::PermissionDenied,
            Failure::Changed | Failure::Other(_) => io::ErrorKind::Other,
        };
        Self::new(kind, failure)
    }
}
