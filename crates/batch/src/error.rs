//! Errors of a job.

use std::{fmt, io};

/// The reason why a job does not run, or has stopped. What was committed stays, and the job goes on
/// from there when it is run again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The job's settings are at fault, or do not match the input or the model. No row was sent.
    #[error("{0}")]
    Usage(String),
    /// The job cannot go on.
    #[error("{0}")]
    Failed(String),
    /// More rows are dead than `max_errors` allows.
    #[error("more rows are dead than max_errors allows; what is committed stays")]
    TooManyDead,
    /// The run was interrupted, and has given its chunks back.
    #[error("the job was interrupted; run it again to go on")]
    Interrupted,
    /// The job was cancelled.
    #[error("the job was cancelled; run it again to go on")]
    Cancelled,
}

impl Error {
    /// An error of the settings.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// A failure of a part of the job.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// An error of the settings, such as a path that leads nowhere, or a failure if it `may_pass`
    /// although nobody changes them.
    pub(crate) fn of_settings(message: impl fmt::Display, may_pass: bool) -> Self {
        match may_pass {
            true => Self::failed(message),
            false => Self::usage(message),
        }
    }

    /// The error of a setting with the name of the setting before it; others as they are.
    pub(crate) fn about(self, setting: &str) -> Self {
        match self {
            Self::Usage(message) => Self::Usage(format!("{setting}: {message}")),
            other => other,
        }
    }

    /// A failure of the output's store at the object `name`.
    pub(crate) fn store(name: &str, error: &io::Error) -> Self {
        Self::Failed(format!("{name}: {error}"))
    }
}

impl From<outrigger_tables::Error> for Error {
    fn from(error: outrigger_tables::Error) -> Self {
        Self::failed(error)
    }
}
