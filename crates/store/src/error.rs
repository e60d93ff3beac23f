//! The store's errors.

use std::{
    io,
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use outrigger_core::{Digest, Reason, ServableId, UnknownFramework};

/// The result of the store's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store's path is not a directory.
    #[error("the store's path {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// Another process uses this store.
    #[error("another control plane uses the store: it holds the lock {}", .0.display())]
    Locked(PathBuf),
    /// The store cannot be written to.
    #[error("the store {} cannot be written to", path.display())]
    NotWritable {
        /// The store's directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The engine's path of the store is relative; the engine requires absolute paths.
    #[error("the engine's path of the store, {}, is not absolute", .0.display())]
    EnginePath(PathBuf),
    /// A layer is malformed or exceeds a limit.
    #[error("layer {layer}: {problem}")]
    Layer {
        /// The layer's digest.
        layer: Digest,
        /// The problem.
        #[source]
        problem: LayerProblem,
    },
    /// An entry of a layer is refused.
    #[error("layer {layer}, entry {entry:?}: {problem}")]
    Entry {
        /// The layer's digest.
        layer: Digest,
        /// The entry's name in the archive, shortened if very long.
        entry: String,
        /// The reason for the refusal.
        #[source]
        problem: EntryProblem,
    },
    /// The image's files are not a model package.
    #[error("image {image} is not a model package: {problem}")]
    Package {
        /// The image's digest.
        image: Digest,
        /// The problem.
        #[source]
        problem: PackageProblem,
    },
    /// The directory of a model's versions does not exist.
    #[error("there is no directory {}", .0.display())]
    NoDirectory(PathBuf),
    /// A version in a directory is refused.
    #[error("the version {}: {problem}", path.display())]
    Version {
        /// The version's directory.
        path: PathBuf,
        /// The problem.
        #[source]
        problem: VersionProblem,
    },
    /// A version in a directory has changed since it was looked at.
    #[error("the version {} changes while it is read", .0.display())]
    Changed(PathBuf),
    /// No known engine runs the image's model.
    #[error(transparent)]
    Framework(#[from] UnknownFramework),
    /// The content in use and the request together exceed the store's configured size.
    #[error("the store is full: {needed} needed, {used} of {max} used, the rest is in use")]
    Full {
        /// The requested space.
        needed: ByteSize,
        /// The space that remains in use after eviction, reservations of others included.
        used: ByteSize,
        /// The configured size.
        max: ByteSize,
    },
    /// The disk is full.
    #[error("no space left on the disk of {}", path.display())]
    NoSpace {
        /// The file or directory being written.
        path: PathBuf,
        /// The system's error, if there was one.
        #[source]
        source: Option<io::Error>,
    },
    /// A layer is not in the store.
    #[error("layer {0} is not in the store")]
    BlobMissing(Digest),
    /// A layer in the store did not have its digest and was removed.
    #[error("layer {expected} in the store has digest {actual}; it was removed")]
    BlobCorrupt {
        /// The digest that it was stored under.
        expected: Digest,
        /// The digest of its content.
        actual: Digest,
    },
    /// The tree is published, so it cannot be removed.
    #[error("the tree of {0} is published to the engine")]
    TreePublished(Digest),
    /// The tree is not in the store.
    #[error("the tree of {0} is not in the store")]
    TreeMissing(Digest),
    /// The version is already published with another content.
    #[error("servable {0} is published already, as something else")]
    VersionTaken(ServableId),
    /// The version numbers are exhausted.
    #[error("no version number is left after {0}")]
    VersionsExhausted(i64),
    /// Any other failure of the file system.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The problem of a layer as a whole.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LayerProblem {
    #[error("declared as {declared}, but it is {found}")]
    Compression { declared: &'static str, found: &'static str },
    #[error("its {0} stream is damaged or cut off")]
    Damaged(&'static str, #[source] io::Error),
    #[error("the archive is cut off")]
    Truncated,
    #[error("the archive's header at byte {offset} is invalid: {what}")]
    Header { offset: u64, what: &'static str },
    #[error("the image unpacks to more than {0}, this layer included")]
    TooLarge(ByteSize),
    #[error("the image has more than {0} entries, those of this layer included")]
    TooManyEntries(u64),
}

/// The reason why an entry of a layer is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum EntryProblem {
    #[error("its name is empty or holds a NUL byte")]
    Name,
    #[error("its name leads out of the image by '..'")]
    ParentDir,
    #[error("its name is longer than {0} bytes")]
    NameTooLong(usize),
    #[error("a part of its name is longer than {0} bytes")]
    PartTooLong(usize),
    #[error("the names of its layer have more than {0} in total")]
    Names(ByteSize),
    #[error("it lies deeper than {0} directories")]
    TooDeep(usize),
    #[error("{0} are not allowed in a model image")]
    Kind(&'static str),
    #[error("it is of unknown type {0:#04x}")]
    UnknownKind(u8),
    #[error("its path contains {0:?}, which is not a directory")]
    NotADirectory(String),
    #[error("it lies behind a circle of links, or behind more than {0} names")]
    Links(usize),
    #[error("its link target is empty")]
    LinkEmpty,
    #[error("it links to {0:?}, out of the image")]
    LinkOutside(String),
    #[error("it links to {0:?}, which is not a file or directory under /data")]
    LinkTarget(String),
    #[error("it links to the directory {0:?}; inside of a model only links to files are allowed")]
    LinkDirectory(String),
    #[error("it is a whiteout without a valid name")]
    Whiteout,
}

/// The reason why a version in a directory is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VersionProblem {
    #[error("it has more than {0} entries")]
    TooManyEntries(u64),
    #[error("its files have more than {0}")]
    TooLarge(ByteSize),
    #[error("its paths have more than {0} in total")]
    Names(ByteSize),
    #[error("the name {0:?} has control characters or backslashes, or is not UTF-8")]
    Name(String),
    #[error("the path of a file is longer than {0} bytes")]
    NameTooLong(usize),
    #[error("a file lies deeper than {0} directories")]
    TooDeep(usize),
    #[error("{0} is neither a file nor a directory nor a symbolic link")]
    Kind(String),
    #[error("the symbolic link {0} leads out of the directory of the model's versions")]
    LinkOutside(String),
    #[error("the symbolic link {0} leads to nothing")]
    LinkTarget(String),
    #[error("the symbolic link {0} leads to a directory; only links to files are allowed")]
    LinkDirectory(String),
    #[error("{0}: {1}")]
    Path(String, #[source] EntryProblem),
    #[error("{0} has more than {1}")]
    FileTooLarge(String, ByteSize),
    #[error("it has no metadata.json, and no files of a model that is known without one")]
    NoMetadata,
    #[error("it has no metadata.json, and its model cannot be described: {0}")]
    NotDescribed(String),
}

/// The reason why an image's files are not a model package.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PackageProblem {
    #[error("it has no directory /data")]
    NoData,
    #[error("its /data is a symbolic link to {0:?}; only what is in a directory /data is kept")]
    DataLink(String),
    #[error("no metadata.json: looked for {0}")]
    NoMetadata(String),
    #[error("no model: looked for {0}")]
    NoModel(String),
    #[error("several models in /data/{directory}: {names}; a package holds one")]
    SeveralModels { directory: String, names: String },
    #[error("there is no file /{0}")]
    NoPart(String),
    #[error("/{0} is empty")]
    Empty(String),
    #[error("/{path} has {size}, more than the {max} allowed")]
    TooLarge { path: String, size: ByteSize, max: ByteSize },
}

impl Error {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Layer { .. }
            | Self::Entry { .. }
            | Self::Package { .. }
            | Self::Version { .. } => Reason::ImageInvalid,
            Self::NoDirectory(_) => Reason::ModelNotFound,
            // A later attempt may find it complete.
            Self::Changed(_) => Reason::RegistryUnavailable,
            Self::Framework(_) => Reason::EngineNotChosen,
            Self::Full { .. } | Self::NoSpace { .. } => Reason::StoreFull,
            _ => Reason::Internal,
        }
    }

    /// Whether the same call may succeed later with the same image: true for all errors that are
    /// not caused by the image.
    pub fn is_transient(&self) -> bool {
        self.reason() != Reason::ImageInvalid
    }

    /// The error for a failed `action` on `path`. A full disk has an error of its own.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_no_space(&source) {
            Self::NoSpace { path, source: Some(source) }
        } else {
            Self::Io { action, path, source }
        }
    }
}

/// Whether the error means that the bytes do not fit: no space on the disk, over the quota, or over
/// the process's limit of file size.
fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_code_of_a_full_disk_means_store_full() {
        for code in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT, rustix::io::Errno::FBIG] {
            let error = Error::io("write", Path::new("x"), code.into());
            assert_eq!(error.reason(), Reason::StoreFull, "{error:?}");
        }
        let error = Error::io("write", Path::new("x"), rustix::io::Errno::IO.into());
        assert_eq!(error.reason(), Reason::Internal);
    }
}
