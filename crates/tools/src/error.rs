//! What can go wrong in a command.

use outrigger_core::{Failure, Reason, causes};
use tonic_types::StatusExt as _;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached.
    #[error("no answer from {address}: {}", causes(&**.source))]
    Unreachable {
        /// Where the server was expected.
        address: String,
        /// What the transport says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered with an error.
    #[error("{reason}: {message}")]
    Refused {
        /// The stable reason, or the status code where there is none.
        reason: String,
        /// What the server says.
        message: String,
    },
    /// The command line or a file it names is not usable.
    #[error("{0}")]
    Usage(String),
    /// The engine that a command needs could not be had.
    #[error("the engine did not start: {0}")]
    Engine(String),
    /// A part of ours failed, with its reason.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Error {
    /// A failure of this machine's disk at `what`.
    pub(crate) fn io(what: &str, error: std::io::Error) -> Self {
        Self::Failed(Failure::new(Reason::Internal, format!("{what}: {error}")))
    }

    /// Whether the fault lies with the command line.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        let info = status.get_details_error_info();
        let reason = info.map_or_else(|| format!("{:?}", status.code()), |info| info.reason);
        Self::Refused { reason, message: status.message().to_owned() }
    }
}
