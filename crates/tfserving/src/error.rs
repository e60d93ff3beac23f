//! Errors of the client's configuration and of reloads. Runs and the other calls fail with a
//! [`RunError`].

use outrigger_core::Reason;
use outrigger_run::RunError;
use tonic::Code;

/// The client's configuration is not valid.
#[derive(Debug, thiserror::Error)]
#[error("the engine's configuration is not valid: {0}")]
pub struct InvalidConfig(pub(crate) String);

impl InvalidConfig {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        Reason::Internal
    }
}

/// The failure of a reload.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The engine did not answer in time. It may still be working on the reload and apply it later,
    /// and another reload now would only queue behind it.
    #[error("the engine did not answer the reload in time, and may still be working on it")]
    Timeout,
    /// The engine answered with an error.
    #[error("the engine refused the configuration ({code:?}): {message}")]
    Refused {
        /// The gRPC status.
        code: Code,
        /// The engine's message.
        message: String,
    },
    /// The engine could not be reached, or the connection broke; the engine may or may not have
    /// applied the configuration.
    #[error("the engine does not answer")]
    Unavailable(#[source] RunError),
}

impl ReloadError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Timeout => Reason::EngineUnavailable,
            Self::Refused { .. } => Reason::EngineFailed,
            Self::Unavailable(error) => error.reason(),
        }
    }

    /// Whether the engine took the configuration despite the error: it answers UNKNOWN when a new
    /// model failed to load, and keeps the configuration.
    pub fn was_applied(&self) -> bool {
        matches!(self, Self::Refused { code: Code::Unknown, .. })
    }
}
