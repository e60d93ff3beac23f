//! Why something about an image failed, by type.

use std::{io, path::PathBuf, time::Duration};

use outrigger_core::{Digest, Failure, Reason};

/// What went wrong below an [`Error`], for the chain of sources.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why something about an image failed. No variant ever holds a credential or
/// the address of a redirect, which may be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The registry, or layout directory, has no such repository.
    #[error("{repository}: no such repository")]
    RepositoryNotFound {
        /// The repository asked for.
        repository: String,
    },
    /// The repository has no such tag.
    #[error("{repository}: no tag {tag:?}")]
    TagNotFound {
        /// The repository asked for.
        repository: String,
        /// The tag asked for.
        tag: String,
    },
    /// The repository has no such manifest or blob.
    #[error("{repository}: no {digest}")]
    DigestNotFound {
        /// The repository asked for.
        repository: String,
        /// The digest asked for.
        digest: Digest,
    },
    /// The registry or its token server refuses what we are (401, 403).
    #[error("{registry} refuses access: {detail}")]
    Denied {
        /// The registry's host.
        registry: String,
        /// What was refused, without any credential.
        detail: String,
    },
    /// The registry does not answer, or not now: worth another try.
    #[error("{registry} is unavailable: {detail}")]
    Unavailable {
        /// The registry's host, or that of its token server.
        registry: String,
        /// What was seen of it.
        detail: String,
        /// When the registry asks to be called again.
        retry_after: Option<Duration>,
        /// The failure below, where there is one.
        #[source]
        source: Option<Cause>,
    },
    /// The content is not what its digest says.
    #[error("{what} should be {expected} and is {actual}")]
    DigestMismatch {
        /// What was read.
        what: String,
        /// The digest asked for.
        expected: Digest,
        /// The digest of what came.
        actual: Digest,
    },
    /// The content is not as long as its descriptor says.
    #[error("{what} should have {expected} bytes and has {actual}")]
    SizeMismatch {
        /// What was read.
        what: String,
        /// Bytes, by the descriptor.
        expected: u64,
        /// Bytes that came; a lower bound when reading stopped there.
        actual: u64,
    },
    /// More than we are ready to read.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// What was read.
        what: String,
        /// The limit, bytes.
        limit: u64,
    },
    /// What came cannot be understood, or is nothing we can use.
    #[error("{what}: {problem}")]
    Invalid {
        /// What was read.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The local disk.
    #[error("{}", path.display())]
    Io {
        /// The file or directory at hand.
        path: PathBuf,
        /// The failure below.
        #[source]
        source: io::Error,
    },
    /// The configuration cannot work.
    #[error("{problem}")]
    Config {
        /// What is wrong with it.
        problem: String,
        /// The failure below, where there is one.
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
            Self::Unavailable { .. } => Reason::RegistryUnavailable,
            Self::DigestMismatch { .. }
            | Self::SizeMismatch { .. }
            | Self::TooLarge { .. }
            | Self::Invalid { .. } => Reason::ImageInvalid,
            Self::Io { source, .. } if disk_full(source) => Reason::StoreFull,
            Self::Io { .. } | Self::Config { .. } => Reason::Internal,
        }
    }

    /// Whether the same call may succeed a little later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether what was read is at fault: it is not there, not what it should be,
    /// or nothing we can use.
    pub(crate) fn is_about_content(&self) -> bool {
        !matches!(
            self,
            Self::Denied { .. } | Self::Unavailable { .. } | Self::Io { .. } | Self::Config { .. }
        )
    }

    /// When the registry asks to be called again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The failure as callers see it.
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
    fn a_full_disk_is_a_full_store_and_other_disk_trouble_is_ours() {
        let io = |kind: io::ErrorKind| Error::io("/store")(kind.into());
        assert_eq!(io(io::ErrorKind::StorageFull).reason(), Reason::StoreFull);
        assert_eq!(io(io::ErrorKind::QuotaExceeded).reason(), Reason::StoreFull);
        assert_eq!(io(io::ErrorKind::PermissionDenied).reason(), Reason::Internal);
    }

    #[test]
    fn a_failure_tells_the_chain_and_when_to_come_back() {
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
