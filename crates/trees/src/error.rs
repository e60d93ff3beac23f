//! Errors of reading a model.

use std::{fmt, io};

/// The reasons why a model cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The source could not be read.
    Io(io::Error),
    /// The file is not a valid model. The text says what is wrong with it.
    Invalid(String),
    /// The file is a valid model of a kind that cannot be scored. The text says which.
    Unsupported(String),
    /// The model needs more memory, in bytes, than the limit allows.
    Memory {
        /// Bytes that were needed when reading was ended. The whole model may need more.
        needed: u64,
        /// The limit: [`Limits::memory`](crate::Limits::memory).
        limit: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the model file cannot be read: {error}"),
            Self::Invalid(text) => write!(f, "the model file is invalid: {text}"),
            Self::Unsupported(text) => write!(f, "the model is not supported: {text}"),
            Self::Memory { needed, limit } => {
                write!(f, "the model needs at least {needed} bytes of memory, {limit} are allowed")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An [`Error::Invalid`].
pub(crate) fn invalid(text: impl Into<String>) -> Error {
    Error::Invalid(text.into())
}
