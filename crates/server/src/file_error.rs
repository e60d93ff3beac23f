//! The error of a file that the server reads.

use std::path::{Path, PathBuf};

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The problem; it never includes the file's content.
    pub problem: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, problem: impl ToString) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string() }
    }
}
