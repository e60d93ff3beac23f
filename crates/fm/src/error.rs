//! Errors of reading a model.

use std::{fmt, io};

/// A file of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The factorisation machine (`deploy.fm`).
    Fm,
    /// The features of the leaves (`deploy.leaf_mapping`).
    LeafMapping,
    /// The table of feature names.
    Names,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fm => "FM file",
            Self::LeafMapping => "leaf mapping",
            Self::Names => "table of feature names",
        })
    }
}

/// The reasons why a model cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The tree model cannot be read.
    Trees(outrigger_trees::Error),
    /// The files are a valid model that cannot be scored. The text says why.
    Unsupported(String),
    /// A file could not be read.
    Io(Part, io::Error),
    /// An entry of a file is malformed.
    Entry {
        /// The file.
        part: Part,
        /// The kind of entry: `line`, or `record` in a binary file.
        entry: &'static str,
        /// The number of the entry, counted from 1.
        number: u64,
        /// The fault.
        text: String,
    },
    /// A file is not valid. The text says what is wrong with it.
    Invalid(Part, String),
    /// The model needs more memory, in bytes, than the limit allows.
    Memory {
        /// Bytes that were needed when reading was ended. The whole model may need more.
        needed: u64,
        /// The limit: [`Limits::memory`](outrigger_trees::Limits::memory).
        limit: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trees(error) => error.fmt(f),
            Self::Io(part, error) => write!(f, "the {part} cannot be read: {error}"),
            Self::Unsupported(text) => write!(f, "the model is not supported: {text}"),
            Self::Entry { part, entry, number, text } => {
                write!(f, "the {part} is invalid in {entry} {number}: {text}")
            }
            Self::Invalid(part, text) => write!(f, "the {part} is invalid: {text}"),
            Self::Memory { needed, limit } => {
                write!(f, "the model needs at least {needed} bytes of memory, {limit} are allowed")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Trees(error) => Some(error),
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<outrigger_trees::Error> for Error {
    fn from(error: outrigger_trees::Error) -> Self {
        match error {
            outrigger_trees::Error::Memory { needed, limit } => Self::Memory { needed, limit },
            error => Self::Trees(error),
        }
    }
}
