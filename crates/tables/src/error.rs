//! Errors of a file as a whole.

use std::{
    fmt::{self, Display},
    io,
    path::{Path, PathBuf},
};

use parquet::errors::ParquetError;
use rustix::io::Errno;

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
    /// True if the file may be read later although nobody changes anything, as [`may_pass`] says.
    pub may_pass: bool,
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
    pub(crate) fn new(path: &Path, Cause { problem, message, may_pass }: Cause) -> Self {
        Self { path: path.to_owned(), problem, message, may_pass }
    }
}

/// The cause of an error, before the file is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    problem: Problem,
    message: String,
    may_pass: bool,
}

impl Cause {
    pub(crate) fn of(cause: impl Display) -> Self {
        Self { problem: Problem::Other, message: cause.to_string(), may_pass: false }
    }

    pub(crate) fn too_large(cause: impl Display) -> Self {
        Self { problem: Problem::TooLarge, ..Self::of(cause) }
    }

    /// The cause of an error of the library, which may be one of the file system.
    pub(crate) fn of_parquet(error: &ParquetError) -> Self {
        let io = match error {
            ParquetError::External(cause) => cause.downcast_ref::<io::Error>(),
            _ => None,
        };
        Self { may_pass: io.is_some_and(may_pass), ..Self::of(error) }
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
        Self { problem, message: error.to_string(), may_pass: may_pass(&error) }
    }
}

/// True if a file or a store may answer later although nobody changes a setting or a file: it is
/// away, its network is, the process has too little of something, or a store refuses credentials,
/// which are renewed. A file whose permissions refuse it is not meant.
pub fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    match (error.kind(), error.raw_os_error()) {
        (Kind::PermissionDenied, code) => code.is_none(),
        (
            Kind::BrokenPipe
            | Kind::ConnectionAborted
            | Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::HostUnreachable
            | Kind::Interrupted
            | Kind::NetworkDown
            | Kind::NetworkUnreachable
            | Kind::NotConnected
            | Kind::OutOfMemory
            | Kind::ResourceBusy
            | Kind::StaleNetworkFileHandle
            | Kind::TimedOut
            | Kind::WouldBlock,
            _,
        ) => true,
        (_, Some(code)) => {
            let passing = [Errno::IO, Errno::MFILE, Errno::NFILE, Errno::HOSTDOWN, Errno::REMOTEIO];
            passing.iter().any(|errno| errno.raw_os_error() == code)
        }
        (_, None) => false,
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_store_that_is_away_may_come_back() {
        let of_kind = |kind: io::ErrorKind| may_pass(&io::Error::new(kind, "a store says so"));
        let of_system = |errno: Errno| may_pass(&errno.into());
        for errno in [Errno::STALE, Errno::TIMEDOUT, Errno::IO, Errno::MFILE, Errno::HOSTDOWN] {
            assert!(of_system(errno), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::NOTDIR, Errno::ISDIR, Errno::INVAL] {
            assert!(!of_system(errno), "{errno}");
        }
        assert!(of_kind(io::ErrorKind::TimedOut) && of_kind(io::ErrorKind::PermissionDenied));
        assert!(!of_kind(io::ErrorKind::NotFound) && !of_kind(io::ErrorKind::InvalidData));
        let away = io::Error::new(io::ErrorKind::TimedOut, "no answer");
        assert!(Cause::of_parquet(&away.into()).may_pass);
        assert!(!Cause::of_parquet(&ParquetError::General("damaged".to_owned())).may_pass);
    }
}
