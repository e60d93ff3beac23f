//! Errors of a file as a whole.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

/// A file cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub message: String,
}

impl Error {
    pub(crate) fn new(path: &Path, cause: impl Display) -> Self {
        Self { path: path.to_owned(), message: cause.to_string() }
    }
}
