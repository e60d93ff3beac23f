//! Errors of commands.

use outrigger_core::{Failure, Reason, causes};
use tonic_types::StatusExt as _;

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot be reached.
    #[error("no answer from {address}: {}", causes(&**.source))]
    Unreachable {
        /// The server's address.
        address: String,
        /// The transport's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered with an error.
    #[error("{reason}: {message}")]
    Refused {
        /// The stable reason, or the status code if there is none.
        reason: String,
        /// The server's message.
        message: String,
    },
    /// The command line or a file that it names is invalid.
    #[error("{0}")]
    Usage(String),
    /// The engine that the command needs did not start.
    #[error("the engine did not start: {0}")]
    Engine(String),
    /// A part of the command failed, for a stable reason.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Error {
    /// An I/O error of this machine at `what`.
    pub(crate) fn io(what: &str, error: std::io::Error) -> Self {
        Self::Failed(Failure::new(Reason::Internal, format!("{what}: {error}")))
    }

    /// True if the command line is the cause.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}

impl From<outrigger_validation::Error> for Error {
    fn from(error: outrigger_validation::Error) -> Self {
        match error {
            outrigger_validation::Error::Input(error) => Self::Usage(error.to_string()),
            outrigger_validation::Error::Scores(error) => {
                Self::Failed(Failure::new(Reason::FileInvalid, error.to_string()))
            }
            outrigger_validation::Error::Failed(failure) => Self::Failed(failure),
        }
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        let info = status.get_details_error_info();
        let reason = info.map_or_else(|| format!("{:?}", status.code()), |info| info.reason);
        Self::Refused { reason, message: status.message().to_owned() }
    }
}
