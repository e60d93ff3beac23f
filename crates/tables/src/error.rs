//! Errors of a file as a whole.

use std::{
    fmt::{self, Display},
    io,
    path::{Path, PathBuf},
};

/// A file cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The kind of the cause.
    pub problem: Problem,
    /// The cause.
    pub message: String,
}

/// The kind of the reason why a file cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// There is no such file.
    NotFound,
    /// A file of this name exists, and must not be replaced.
    Exists,
    /// The path is not one that may be used.
    Path,
    /// Reading it would take more memory than the limits allow.
    TooLarge,
    /// The file system failed, or the content is not valid.
    Other,
}

impl Error {
    pub(crate) fn new(path: &Path, Cause { problem, message }: Cause) -> Self {
        Self { path: path.to_owned(), problem, message }
    }
}

/// The cause of an error, before the file is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    problem: Problem,
    message: String,
}

impl Cause {
    pub(crate) fn of(cause: impl Display) -> Self {
        Self { problem: Problem::Other, message: cause.to_string() }
    }

    pub(crate) fn too_large(cause: impl Display) -> Self {
        Self { problem: Problem::TooLarge, message: cause.to_string() }
    }

    /// Names the row at which the file cannot be read any further.
    pub(crate) fn at_row(self, number: u64) -> Self {
        Self { message: format!("row {number}: {}", self.message), ..self }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => Problem::NotFound,
            io::ErrorKind::AlreadyExists => Problem::Exists,
            io::ErrorKind::InvalidInput => Problem::Path,
            io::ErrorKind::FileTooLarge => Problem::TooLarge,
            _ => Problem::Other,
        };
        Self { problem, message: error.to_string() }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
