//! The crate's error, by cause.

use std::{io, path::PathBuf, time::Duration};

use outrigger_core::{Digest, Failure, Reason};

/// The underlying error of an [`Error`], for the chain of sources.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why an operation on an image failed. No variant holds a credential, nor the address
/// of a redirect, which may be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The registry or layout directory does not have the repository.
    #[error("{repository}: no such repository")]
    RepositoryNotFound {
        /// The requested repository.
        repository: String,
    },
    /// The repository does not have the tag.
    #[error("{repository}: no tag {tag:?}")]
    TagNotFound {
        /// The requested repository.
        repository: String,
        /// The requested tag.
        tag: String,
    },
    /// The repository does not have the manifest or blob.
    #[error("{repository}: no {digest}")]
    DigestNotFound {
        /// The requested repository.
        repository: String,
        /// The requested digest.
        digest: Digest,
    },
    /// The registry or its token server refuses our credentials or our access (401, 403).
    #[error("{registry} refuses access: {detail}")]
    Denied {
        /// The registry's host.
        registry: String,
        /// The refused access, without any credential.
        detail: String,
    },
    /// The registry does not answer, or answers that it cannot now. A retry may succeed.
    #[error("{registry} is unavailable: {detail}")]
    Unavailable {
        /// The registry's host, or that of its token server.
        registry: String,
        /// The symptom, such as a status or a broken connection.
        detail: String,
        /// The delay after which the registry asks to be called again.
        retry_after: Option<Duration>,
        /// The underlying error, if there is one.
        #[source]
        source: Option<Cause>,
    },
    /// The registry sends a layer so slowly that it would hold a place among the pulls for long.
    /// The bytes that came are kept, and a later pull continues after them.
    #[error(
        "{registry} is too slow: {received} bytes of a layer in {within:?}, at least {least} are required"
    )]
    TooSlow {
        /// The registry's host.
        registry: String,
        /// The bytes that it sent.
        received: u64,
        /// The time that it had for them.
        within: Duration,
        /// The least number of bytes in that time.
        least: u64,
    },
    /// The destination has no space for more bytes of a layer.
    #[error("{}", .0.message)]
    NoSpace(Failure),
    /// The content does not have the expected digest.
    #[error("{what} should be {expected} and is {actual}")]
    DigestMismatch {
        /// The document or blob that was read.
        what: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the received content.
        actual: Digest,
    },
    /// The content does not have the size that its descriptor states.
    #[error("{what} should have {expected} bytes and has {actual}")]
    SizeMismatch {
        /// The document or blob that was read.
        what: String,
        /// The size by the descriptor, bytes.
        expected: u64,
        /// The received size, bytes; a lower bound if reading stopped there.
        actual: u64,
    },
    /// The content is larger than the limit for reading it.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// The document or blob that was read.
        what: String,
        /// The limit, bytes.
        limit: u64,
    },
    /// The received content is malformed, or of a kind that we do not support.
    #[error("{what}: {problem}")]
    Invalid {
        /// The document or blob that was read.
        what: String,
        /// The problem, in words.
        problem: String,
    },
    /// An operation on the local disk failed.
    #[error("{}", path.display())]
    Io {
        /// The file or directory of the operation.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The client's configuration cannot be used.
    #[error("{problem}")]
    Config {
        /// The problem, in words.
        problem: String,
        /// The underlying error, if there is one.
        #[source]
        source: Option<Cause>,
    },
}

impl Error {
    /// The stable reason for callers.
    pub fn reason(&self) -> Reason {
        match self {
            Self::RepositoryNotFound { .. } => Reason::ModelNotFound,
            Self::TagNotFound { .. } => Reason::TagNotFound,
            Self::DigestNotFound { .. } => Reason::DigestNotFound,
            Self::Denied { .. } => Reason::RegistryDenied,
            Self::Unavailable { .. } | Self::TooSlow { .. } => Reason::RegistryUnavailable,
            Self::NoSpace(failure) => failure.reason,
            Self::DigestMismatch { .. }
            | Self::SizeMismatch { .. }
            | Self::TooLarge { .. }
            | Self::Invalid { .. } => Reason::ImageInvalid,
            Self::Io { source, .. } if disk_full(source) => Reason::StoreFull,
            Self::Io { .. } | Self::Config { .. } => Reason::Internal,
        }
    }

    /// True if the same call may succeed when it is repeated soon.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// True if the content is at fault: it is missing, does not match its digest or size, or cannot
    /// be used.
    pub(crate) fn is_about_content(&self) -> bool {
        !matches!(
            self,
            Self::Denied { .. }
                | Self::Unavailable { .. }
                | Self::TooSlow { .. }
                | Self::NoSpace(_)
                | Self::Io { .. }
                | Self::Config { .. }
        )
    }

    /// The delay after which the registry asks to be called again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The failure that callers of the API receive.
    pub fn failure(&self) -> Failure {
        let mut failure = Failure::because(self.reason(), self);
        failure.retry_after = self.retry_after();
        failure
    }

    /// A short name for metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::RepositoryNotFound { .. }
            | Self::TagNotFound { .. }
            | Self::DigestNotFound { .. } => "not_found",
            Self::Denied { .. } => "denied",
            Self::Unavailable { .. } => "unavailable",
            Self::TooSlow { .. } => "too_slow",
            Self::NoSpace(_) => "no_space",
            Self::DigestMismatch { .. } | Self::SizeMismatch { .. } => "mismatch",
            Self::TooLarge { .. } => "too_large",
            Self::Invalid { .. } => "invalid",
            Self::Io { .. } => "io",
            Self::Config { .. } => "config",
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), problem: problem.into() }
    }

    pub(crate) fn denied(registry: &str, detail: impl Into<String>) -> Self {
        Self::Denied { registry: registry.to_owned(), detail: detail.into() }
    }

    pub(crate) fn unavailable(registry: &str, detail: impl Into<String>) -> Self {
        let registry = registry.to_owned();
        Self::Unavailable { registry, detail: detail.into(), retry_after: None, source: None }
    }
}

fn disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_a_full_store_and_other_disk_errors_are_internal() {
        let io = |kind: io::ErrorKind| Error::io("/store")(kind.into());
        assert_eq!(io(io::ErrorKind::StorageFull).reason(), Reason::StoreFull);
        assert_eq!(io(io::ErrorKind::QuotaExceeded).reason(), Reason::StoreFull);
        assert_eq!(io(io::ErrorKind::PermissionDenied).reason(), Reason::Internal);
    }

    #[test]
    fn a_failure_has_the_chain_of_causes_and_the_retry_delay() {
        let error = Error::Unavailable {
            registry: "registry.example".to_owned(),
            detail: "cannot connect".to_owned(),
            retry_after: Some(Duration::from_secs(3)),
            source: Some("refused".into()),
        };
        let failure = error.failure();
        assert_eq!(failure.message, "registry.example is unavailable: cannot connect: refused");
        assert_eq!(failure.retry_after, Some(Duration::from_secs(3)));
    }
}
