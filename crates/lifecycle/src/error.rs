//! Errors of the lifecycle itself.

use outrigger_core::{Failure, InvalidName, Reason};

/// The failure that kept the lifecycle from starting, or stopped it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A reference in the configuration cannot be parsed.
    #[error("{key}: {message}")]
    Config {
        /// The key at fault, such as `images.allowed[1]`.
        key: String,
        /// A description of the fault.
        message: String,
    },
    /// A name in the configuration is not valid.
    #[error("models: {0}")]
    Name(#[from] InvalidName),
    /// The service has stopped.
    #[error("the service has stopped")]
    Stopped,
    /// The journal could not be read or written.
    #[error("the store's journal failed")]
    Journal(#[source] outrigger_store::Error),
    /// An engine could not take over the versions of an earlier process.
    #[error("the versions of an earlier process cannot be read: {0}")]
    Engine(Failure),
}

impl Error {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        Reason::Internal
    }
}

/// Converts an error of the store.
pub(crate) fn store_failure(error: &outrigger_store::Error) -> Failure {
    Failure::because(error.reason(), error)
}
