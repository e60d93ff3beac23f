//! How a call to the engine fails.

use outrigger_core::{Reason, ServableId};
use outrigger_proto::raw::unary::Unreadable;
use outrigger_rpc::TransportError;
use tonic::Code;

use crate::wire::DecodeError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine cannot be reached, or the connection broke before it answered.
    #[error("the engine does not answer")]
    Unavailable(#[source] TransportError),
    /// The engine refused the call for a moment: stopping, or not yet started.
    #[error("the engine is not available: {message}")]
    NotReady {
        /// What the engine said.
        message: String,
    },
    /// As many calls as configured were in flight, until the deadline.
    #[error("too many calls to the engine were in flight until the deadline")]
    Overloaded,
    /// The engine itself has too much to do: no thread free, or a full queue.
    #[error("the engine is overloaded: {message}")]
    EngineOverloaded {
        /// What the engine said.
        message: String,
    },
    /// The deadline passed, here or in the engine.
    #[error("the engine did not answer before the deadline")]
    DeadlineExceeded,
    /// The engine gave the call up, as it does when a model goes away under it.
    #[error("the engine cancelled the call: {message}")]
    Cancelled {
        /// What the engine said.
        message: String,
    },
    /// The engine does not serve this version.
    #[error("the engine does not serve {servable}")]
    NotServed {
        /// What was asked for.
        servable: ServableId,
    },
    /// The model, or the engine, failed.
    #[error("the engine failed ({code:?}): {message}")]
    Failed {
        /// The gRPC status.
        code: Code,
        /// What the engine said.
        message: String,
    },
    /// The model has no signature of that name.
    #[error("the model has no signature {signature:?}, only {known:?}")]
    NoSignature {
        /// What was asked for.
        signature: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The request would be larger than `max_message`.
    #[error("a request of {size} bytes to the engine is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The engine's answer cannot be understood.
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
            // The version is gone because the engine restarted or the model moved
            // on: what to do about it is lifecycle's to know.
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

/// Why a reload failed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// No answer in time. The engine may be at work on it still, and may apply
    /// it later: another reload now would only queue up behind it.
    #[error("the engine did not answer the reload in time, and may still be working on it")]
    Timeout,
    /// The engine answered with an error.
    #[error("the engine refused the configuration ({code:?}): {message}")]
    Refused {
        /// The gRPC status.
        code: Code,
        /// What the engine said.
        message: String,
    },
    /// The engine could not be reached or the connection broke: whether it
    /// applied the configuration is not known.
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

    /// Whether the engine took the configuration all the same: it answers
    /// UNKNOWN when a new model failed to load, and keeps the configuration.
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
