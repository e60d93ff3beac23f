//! Errors that prevent a report.

use std::{io, path::PathBuf};

use crate::failure::Failure;

/// The reason why a run could not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        #[allow(missing_docs)]
        source: io::Error,
    },
    /// A request, or the metadata to generate it from, is invalid.
    #[error("{0}")]
    Request(String),
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The server cannot be reached.
    #[error("no answer from {server}: {}", failure.message)]
    Unreachable {
        /// The server's address.
        server: String,
        /// The connection's error.
        failure: Failure,
    },
    /// The first request, sent before the run, failed.
    #[error("the first request failed: {0}")]
    Refused(Failure),
    /// The run was stopped before there was something to report.
    #[error("interrupted")]
    Interrupted,
    /// This machine has no resources for a thread, timer or runtime.
    #[error("cannot run: {0}")]
    System(#[from] io::Error),
}

impl Error {
    /// Whether the command line, or a file that it names, is the cause.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Options(_) | Self::Request(_))
    }
}
