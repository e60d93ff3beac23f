//! The operator's token: a random token in a file that only the server's user can read.
//!
//! It stands in for the section `auth`: a process that can read the file runs as the server's user,
//! and so may change models. The engine and other users of the machine cannot read it.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::{fs::OFlags, process::geteuid};

use super::tokens::{self, Tokens};
use crate::{
    caller::Identity,
    config::OperatorFile,
    live::{Contents, FileError, Source},
    metrics,
};

/// The random bytes of a token.
const RANDOM: usize = 32;
/// The most bytes that are read; a written token has twice [`RANDOM`] digits and a line end.
const MOST: u64 = 4096;

impl Source for OperatorFile {
    type Value = Tokens;
    const SECRET: metrics::Secret = metrics::Secret::Operator;

    /// Reads the token. If there is no file, it is written first, so that its removal makes a new
    /// token.
    fn read(&self) -> Result<Contents, FileError> {
        let failed = |error: io::Error| FileError::new(&self.path, error);
        if self.private {
            make_private(directory(&self.path))?;
        }
        let file = match open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write(&self.path).and_then(|()| open(&self.path))
            }
            opened => opened,
        };
        let file = file.map_err(failed)?;
        check(&file.metadata().map_err(failed)?, self)?;
        let mut token = Vec::new();
        file.take(MOST).read_to_end(&mut token).map_err(failed)?;
        Ok(vec![(self.path.clone(), token)])
    }

    fn make(&self, contents: &Contents) -> Result<Tokens, FileError> {
        let token = contents.first().map_or(&[][..], |(_, token)| token.trim_ascii());
        Ok(Tokens::one(tokens::check(&self.path, token)?, Identity::operator()))
    }
}

impl OperatorFile {
    /// True if there is a token for the commands of this user. One that the server would not use
    /// either, because others could have placed it, is an error.
    ///
    /// # Errors
    /// The file, or the private directory that it should be in, is not this user's alone.
    pub fn exists(&self) -> Result<bool, FileError> {
        let found = match open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.and_then(|file| file.metadata()),
        };
        if self.private {
            check_private(directory(&self.path))?;
        }
        check(&found.map_err(|error| FileError::new(&self.path, error))?, self)?;
        Ok(true)
    }
}

/// Opens a file. A link is not followed, and a named pipe is not waited for: in a directory that
/// others can write to, either would be theirs.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

fn check(file: &Metadata, of: &OperatorFile) -> Result<(), FileError> {
    let mode = file.mode() & 0o7777;
    let problem = if !file.is_file() {
        "is no regular file".to_owned()
    } else if file.uid() != geteuid().as_raw() {
        format!("belongs to user {}, not to that of this process", file.uid())
    } else if mode != 0o600 {
        format!("has mode {mode:04o}, must have 0600")
    } else {
        return Ok(());
    };
    let remedy = "remove the file, and the server writes another one";
    Err(FileError::new(&of.path, format!("{problem}; {remedy}")))
}

/// Writes a new token. The file appears as a whole; one that another process has written meanwhile
/// stays.
fn write(path: &Path) -> io::Result<()> {
    let directory = directory(path);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let random: [u8; RANDOM] = rand::random();
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    // Temporary files are created with mode 0600.
    let mut file = tempfile::Builder::new().prefix(".token").tempfile_in(directory)?;
    writeln!(file, "{token}")?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a directory that only this user can enter, or checks an existing one. Its parent may be
/// one that everybody can write to, such as `/tmp`.
fn make_private(directory: &Path) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::new(directory, error);
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ => check_private(directory),
    }
}

/// Checks that only this user can enter a directory.
fn check_private(directory: &Path) -> Result<(), FileError> {
    let found =
        fs::symlink_metadata(directory).map_err(|error| FileError::new(directory, error))?;
    let own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    let problem = "is not a directory of this user alone (mode 0700): set auth.token_file";
    own.then_some(()).ok_or_else(|| FileError::new(directory, problem))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt as _, symlink},
        path::PathBuf,
    };

    use super::*;

    fn of(path: PathBuf) -> OperatorFile {
        OperatorFile { path, private: false }
    }

    fn token(file: &OperatorFile) -> Result<Vec<u8>, String> {
        let contents = file.read().map_err(|error| error.to_string())?;
        file.make(&contents).map_err(|error| error.to_string())?;
        Ok(contents[0].1.clone())
    }

    #[test]
    fn a_token_of_256_bits_is_written_once_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = of(directory.path().join("of/its/own/token"));
        let first = token(&file).unwrap();
        assert_eq!(first.trim_ascii().len(), 64);
        assert!(first.trim_ascii().iter().all(u8::is_ascii_hexdigit));
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let parent = file.path.parent().unwrap();
        assert_eq!((mode(&file.path), mode(parent)), (0o600, 0o700));
        assert_eq!(fs::read_dir(parent).unwrap().count(), 1, "nothing else is left");
        assert_eq!(token(&file).unwrap(), first);
        fs::remove_file(&file.path).unwrap();
        assert_ne!(token(&file).unwrap(), first);
    }

    #[test]
    fn servers_that_start_at_the_same_time_have_one_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = of(directory.path().join("token"));
        let read = || {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| token(&file).unwrap())).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        };
        let tokens = read();
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    }

    #[test]
    fn a_file_that_others_could_read_or_have_placed_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = of(directory.path().join("token"));
        let first = token(&file).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o400] {
            fs::set_permissions(&file.path, fs::Permissions::from_mode(mode)).unwrap();
            let problem = token(&file).unwrap_err();
            assert!(problem.contains(&format!("mode {mode:04o}, must have 0600")), "{problem}");
            assert!(file.exists().is_err());
        }
        assert_eq!(fs::read(&file.path).unwrap(), first, "it is not touched");
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&file.path, &elsewhere).unwrap();
        symlink(&elsewhere, &file.path).unwrap();
        assert!(token(&file).is_err() && file.exists().is_err(), "a link");
        fs::remove_file(&file.path).unwrap();
        fs::create_dir(&file.path).unwrap();
        assert!(token(&file).unwrap_err().contains("no regular file"));
    }

    #[test]
    fn a_short_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = of(directory.path().join("token"));
        token(&file).unwrap();
        fs::write(&file.path, "short\n").unwrap();
        assert!(token(&file).unwrap_err().contains("less than 16"));
    }

    #[test]
    fn the_directory_beside_those_of_others_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("outrigger-0");
        let file = OperatorFile { path: own.join("token"), private: true };
        assert_eq!(file.exists(), Ok(false));
        token(&file).unwrap();
        assert_eq!(file.exists(), Ok(true));
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(token(&file).unwrap_err().contains("of this user alone"));
        assert!(file.exists().is_err());
        let link = directory.path().join("link");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&own, &link).unwrap();
        let through = OperatorFile { path: link.join("token"), private: true };
        assert!(token(&through).unwrap_err().contains("of this user alone"));
        assert!(through.exists().is_err());
    }
}
