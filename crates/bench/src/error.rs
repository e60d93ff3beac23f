//! Why there is nothing to report.

use std::{io, path::PathBuf};

use crate::failure::Failure;

/// Why a run did not come about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        #[allow(missing_docs)]
        source: io::Error,
    },
    /// A request, or what it should be made of, is of no use.
    #[error("{0}")]
    Request(String),
    /// What was asked for does not go together.
    #[error("{0}")]
    Options(String),
    /// The server cannot be reached.
    #[error("no answer from {server}: {}", failure.message)]
    Unreachable {
        /// Where it was expected.
        server: String,
        /// What the connection says.
        failure: Failure,
    },
    /// The first request failed, before the run.
    #[error("the first request failed: {0}")]
    Refused(Failure),
    /// It was stopped before there was something to report.
    #[error("interrupted")]
    Interrupted,
    /// This machine has no thread, timer or runtime left.
    #[error("cannot run: {0}")]
    System(#[from] io::Error),
}

impl Error {
    /// Whether the fault lies with the command line or a file it names.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Options(_) | Self::Request(_))
    }
}
