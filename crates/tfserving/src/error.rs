//! Errors of calls to the engine.

use outrigger_core::{Reason, ServableId};
use outrigger_proto::raw::unary::Unreadable;
use outrigger_rpc::TransportError;
use outrigger_run::RunError;
use tonic::Code;

use crate::wire::DecodeError;

/// The failure of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine cannot be reached, or the connection broke before an answer.
    #[error("the engine does not answer")]
    Unavailable(#[source] TransportError),
    /// The engine refused the call for the moment: it is stopping, or has not started yet.
    #[error("the engine is not available: {message}")]
    NotReady {
        /// The engine's message.
        message: String,
    },
    /// The configured number of calls was in flight until the deadline.
    #[error("too many calls to the engine were in flight until the deadline")]
    Overloaded,
    /// The engine itself is overloaded: no thread is free, or its queue is full.
    #[error("the engine is overloaded: {message}")]
    EngineOverloaded {
        /// The engine's message.
        message: String,
    },
    /// The deadline passed, here or in the engine.
    #[error("the engine did not answer before the deadline")]
    DeadlineExceeded,
    /// The engine cancelled the call, as it does when a model is unloaded during the call.
    #[error("the engine cancelled the call: {message}")]
    Cancelled {
        /// The engine's message.
        message: String,
    },
    /// The engine does not serve this version.
    #[error("the engine does not serve {servable}")]
    NotServed {
        /// The requested servable.
        servable: ServableId,
    },
    /// The model, or the engine, failed.
    #[error("the engine failed ({code:?}): {message}")]
    Failed {
        /// The gRPC status.
        code: Code,
        /// The engine's message.
        message: String,
    },
    /// The model has no signature of that name.
    #[error("the model has no signature {signature:?}, only {known:?}")]
    NoSignature {
        /// The requested signature.
        signature: String,
        /// The signatures that the model has.
        known: Vec<String>,
    },
    /// The request is larger than `max_message`.
    #[error("a request of {size} bytes to the engine is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The engine's answer cannot be decoded.
    #[error("the engine's answer is not valid")]
    Answer(#[from] DecodeError),
    /// The engine's answer is not one gRPC message.
    #[error("the engine's answer is not valid")]
    Framing(#[from] Unreadable),
    /// The configuration is not valid.
    #[error("the engine's configuration is not valid: {0}")]
    Config(String),
}

impl Error {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unavailable(_) | Self::NotReady { .. } => Reason::EngineUnavailable,
            // The version is gone because the engine restarted or the model got a new version; the
            // lifecycle decides how to handle that.
            Self::NotServed { .. } | Self::Cancelled { .. } => Reason::EngineUnavailable,
            Self::Overloaded | Self::EngineOverloaded { .. } => Reason::Overloaded,
            Self::DeadlineExceeded => Reason::Deadline,
            Self::Failed { .. } | Self::Framing(_) => Reason::EngineFailed,
            Self::NoSignature { .. } => Reason::ImageInvalid,
            Self::TooLarge { .. } => Reason::TooLarge,
            Self::Answer(error) => error.reason(),
            Self::Config(_) => Reason::Internal,
        }
    }

    /// A bounded label for metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::NotReady { .. } => "unavailable",
            Self::Overloaded => "shed",
            Self::EngineOverloaded { .. } => "overloaded",
            Self::DeadlineExceeded => "deadline",
            Self::Cancelled { .. } => "cancelled",
            Self::NotServed { .. } => "not_served",
            Self::Failed { .. } | Self::NoSignature { .. } => "failed",
            Self::TooLarge { .. } => "too_large",
            Self::Answer(_) | Self::Framing(_) => "invalid_answer",
            Self::Config(_) => "config",
        }
    }
}

impl From<Error> for RunError {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable(source) => Self::Unavailable(source.into()),
            Error::NotReady { message } => Self::NotReady { message },
            Error::Overloaded => Self::Overloaded,
            Error::EngineOverloaded { message } => Self::EngineOverloaded { message },
            Error::DeadlineExceeded => Self::DeadlineExceeded,
            Error::Cancelled { message } => Self::Cancelled { message },
            Error::NotServed { servable } => Self::NotServed { servable },
            Error::Failed { code, message } => Self::Failed { code: format!("{code:?}"), message },
            Error::NoSignature { signature, known } => Self::NoSignature { signature, known },
            Error::TooLarge { size, limit } => Self::TooLarge { size, limit },
            Error::Answer(source) => {
                Self::Answer { reason: source.reason(), source: source.into() }
            }
            Error::Framing(source) => {
                Self::Answer { reason: Reason::EngineFailed, source: source.into() }
            }
            Error::Config(message) => Self::Failed { code: "Config".to_owned(), message },
        }
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
    Unavailable(#[source] Error),
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

    /// A bounded label for metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Timeout => "deadline",
            Self::Refused { .. } => "failed",
            Self::Unavailable(error) => error.outcome(),
        }
    }
}
