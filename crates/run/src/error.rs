//! Why a run failed.

use outrigger_core::{Reason, ServableId};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a run of a model failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The engine cannot be reached, or the connection broke before it answered.
    #[error("the engine does not answer")]
    Unavailable(#[source] Source),
    /// The engine refused the call for a moment: stopping, or not yet started.
    #[error("the engine is not available: {message}")]
    NotReady {
        /// The engine's message.
        message: String,
    },
    /// The configured number of calls was in flight until the deadline.
    #[error("too many calls to the engine were in flight until the deadline")]
    Overloaded,
    /// The engine itself has too much to do: no thread free, or a full queue.
    #[error("the engine is overloaded: {message}")]
    EngineOverloaded {
        /// The engine's message.
        message: String,
    },
    /// The deadline passed, here or in the engine.
    #[error("the engine did not answer before the deadline")]
    DeadlineExceeded,
    /// The engine gave the call up, as it does when a model goes away under it.
    #[error("the engine cancelled the call: {message}")]
    Cancelled {
        /// The engine's message.
        message: String,
    },
    /// The engine does not serve this version.
    #[error("the engine does not serve {servable}")]
    NotServed {
        /// The version asked for.
        servable: ServableId,
    },
    /// The model, or the engine, failed.
    #[error("the engine failed ({code}): {message}")]
    Failed {
        /// The engine's own code, for people.
        code: String,
        /// The engine's message.
        message: String,
    },
    /// The model has no signature of that name.
    #[error("the model has no signature {signature:?}, only {known:?}")]
    NoSignature {
        /// The name asked for.
        signature: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The request would be larger than the engine's limit.
    #[error("a request of {size} bytes to the engine is over the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The engine's answer cannot be read.
    #[error("the engine's answer is not valid")]
    Answer {
        /// The stable reason.
        reason: Reason,
        /// Why not.
        source: Source,
    },
}

impl RunError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unavailable(_) | Self::NotReady { .. } => Reason::EngineUnavailable,
            // The version is gone because the engine restarted or the model moved on.
            Self::NotServed { .. } | Self::Cancelled { .. } => Reason::EngineUnavailable,
            Self::Overloaded | Self::EngineOverloaded { .. } => Reason::Overloaded,
            Self::DeadlineExceeded => Reason::Deadline,
            Self::Failed { .. } => Reason::EngineFailed,
            Self::NoSignature { .. } => Reason::ImageInvalid,
            Self::TooLarge { .. } => Reason::TooLarge,
            Self::Answer { reason, .. } => *reason,
        }
    }
}
