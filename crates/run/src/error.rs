//! Errors of runs.

use std::error::Error;

use outrigger_core::{Failure, Reason, ServableId, Tensor, causes};
use tokio::sync::Notify;

type Source = Box<dyn Error + Send + Sync>;

/// The failure of a run of a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The engine cannot be reached, or the connection broke before an answer.
    #[error("the engine does not answer")]
    Unavailable(#[source] Source),
    /// The connection broke while the engine had the call: its process may have ended.
    #[error("the engine was lost during the call")]
    Lost {
        /// The inputs, to run the model again.
        inputs: Vec<Tensor>,
        /// The cause.
        source: Source,
    },
    /// The engine did not run the call: it is away, or has not loaded the version again.
    #[error("{source}")]
    Unsent {
        /// The inputs, to run the model later.
        inputs: Vec<Tensor>,
        /// The cause.
        source: Box<RunError>,
    },
    /// The engine refused the call for the moment: it is stopping, or has not started yet. Or it has
    /// not answered anything for a while.
    #[error("the engine is not available: {message}")]
    NotReady {
        /// The engine's message.
        message: String,
    },
    /// The configured number of calls was in flight until the deadline.
    #[error("too many calls to the engine were in flight until the deadline")]
    Overloaded,
    /// All calls that the version may have in flight were given up by their callers.
    #[error(
        "the engine still works on {0} calls of this version that their callers have given up: it takes \
         no more of them until one ends"
    )]
    GivenUp(usize),
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
        /// The requested version.
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
    /// The model does not take the values of the inputs, which are the caller's.
    #[error("{message}")]
    Refused {
        /// The stable reason, whose code is INVALID_ARGUMENT.
        reason: Reason,
        /// The problem.
        message: String,
    },
    /// The engine, or this version, has no contributions. The text says why.
    #[error("{0}")]
    Unexplained(String),
    /// The model has no signature of that name.
    #[error("the model has no signature {signature:?}, only {known:?}")]
    NoSignature {
        /// The requested signature.
        signature: String,
        /// The signatures that the model has.
        known: Vec<String>,
    },
    /// The request is larger than the engine's limit.
    #[error("a request of {size} bytes to the engine is over the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The engine's answer cannot be decoded.
    #[error("the engine's answer is not valid")]
    Answer {
        /// The stable reason.
        reason: Reason,
        /// The cause.
        source: Source,
    },
}

impl RunError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unavailable(_) | Self::Lost { .. } | Self::NotReady { .. } => {
                Reason::EngineUnavailable
            }
            // The version is gone because the engine restarted or the model got a new version.
            Self::NotServed { .. } | Self::Cancelled { .. } => Reason::EngineUnavailable,
            Self::Unsent { source, .. } => source.reason(),
            Self::Overloaded | Self::GivenUp(_) | Self::EngineOverloaded { .. } => {
                Reason::Overloaded
            }
            Self::DeadlineExceeded => Reason::Deadline,
            Self::Failed { .. } => Reason::EngineFailed,
            Self::Unexplained(_) => Reason::ContributionsUnsupported,
            Self::NoSignature { .. } => Reason::ImageInvalid,
            Self::TooLarge { .. } => Reason::TooLarge,
            Self::Refused { reason, .. } | Self::Answer { reason, .. } => *reason,
        }
    }

    /// The label of a failed call in metrics.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Unavailable(_)
            | Self::Lost { .. }
            | Self::Unsent { .. }
            | Self::NotReady { .. } => "unavailable",
            Self::Overloaded | Self::GivenUp(_) => "shed",
            Self::EngineOverloaded { .. } => "overloaded",
            Self::DeadlineExceeded => "deadline",
            Self::Cancelled { .. } => "cancelled",
            Self::NotServed { .. } => "not_served",
            Self::TooLarge { .. } => "too_large",
            Self::Refused { .. } => "refused",
            Self::Answer { .. } => "invalid_answer",
            _ => "failed",
        }
    }
}

impl RunError {
    /// The engine refuses the values of the inputs, with this message. It says nothing about the
    /// engine or the version: both run other inputs.
    pub fn of_input(message: &str) -> Self {
        let message = format!("the engine refuses the input: {message}");
        Self::Refused { reason: Reason::RequestMalformed, message }
    }

    /// The failure of a call with `inputs`, as an engine reports it: inputs that it did not run are
    /// kept, to run them later. If its process may have ended, `suspect` is notified, so that it is
    /// looked at at once.
    #[must_use]
    pub fn reported(self, inputs: Vec<Tensor>, suspect: &Notify) -> Self {
        match self {
            Self::Unavailable(_) | Self::NotServed { .. } => {
                suspect.notify_one();
                Self::Unsent { inputs, source: Box::new(self) }
            }
            Self::Lost { .. } => {
                suspect.notify_one();
                self
            }
            other => other,
        }
    }

    /// The failure of one run that was made for several calls, as that of the call with `inputs`.
    pub fn for_call(&self, inputs: Vec<Tensor>) -> Self {
        match self {
            Self::Unavailable(source) => Self::Unavailable(chain(&**source)),
            Self::Lost { source, .. } => Self::Lost { inputs, source: chain(&**source) },
            Self::Unsent { source, .. } => {
                Self::Unsent { inputs, source: Box::new(source.for_call(Vec::new())) }
            }
            Self::NotReady { message } => Self::NotReady { message: message.clone() },
            Self::Overloaded => Self::Overloaded,
            Self::GivenUp(calls) => Self::GivenUp(*calls),
            Self::EngineOverloaded { message } => {
                Self::EngineOverloaded { message: message.clone() }
            }
            Self::DeadlineExceeded => Self::DeadlineExceeded,
            Self::Cancelled { message } => Self::Cancelled { message: message.clone() },
            Self::NotServed { servable } => Self::NotServed { servable: servable.clone() },
            Self::Failed { code, message } => {
                Self::Failed { code: code.clone(), message: message.clone() }
            }
            Self::Refused { reason, message } => {
                Self::Refused { reason: *reason, message: message.clone() }
            }
            Self::Unexplained(text) => Self::Unexplained(text.clone()),
            Self::NoSignature { signature, known } => {
                Self::NoSignature { signature: signature.clone(), known: known.clone() }
            }
            Self::TooLarge { size, limit } => Self::TooLarge { size: *size, limit: *limit },
            Self::Answer { reason, source } => {
                Self::Answer { reason: *reason, source: chain(&**source) }
            }
        }
    }
}

/// An error with the text of `error` and of all its causes.
fn chain(error: &(dyn Error + 'static)) -> Source {
    causes(error).into()
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let is_cut_off = matches!(error, RunError::Lost { .. });
        Self { is_cut_off, ..Self::because(error.reason(), &error) }
    }
}
