//! Bearer tokens in files, one file per caller.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use crate::{
    caller::{Identity, Kind},
    live::{self, Contents, FileError, Source},
    metrics,
};

/// The most tokens in all. Each one is compared with the token that a caller presents.
const MOST: usize = 1024;
/// The fewest bytes of a token: a shorter one can be guessed.
const SHORTEST: usize = 16;

/// A directory of token files: the file name is the caller's name, each line is a token.
pub(crate) struct TokenFiles {
    directory: PathBuf,
}

/// The valid tokens, as hashes, with the identity of each.
#[derive(Debug)]
pub(crate) struct Tokens(Vec<([u8; 32], Identity)>);

impl TokenFiles {
    /// The tokens in a directory.
    pub(crate) fn within(directory: PathBuf) -> Self {
        Self { directory }
    }
}

impl Source for TokenFiles {
    type Value = Tokens;
    const SECRET: metrics::Secret = metrics::Secret::Tokens;

    fn read(&self) -> Result<Contents, FileError> {
        let failed = |error| FileError::new(&self.directory, error);
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // Kubernetes keeps the targets of a mounted Secret's links in `..data`.
            let hidden =
                path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| live::read(path)).collect()
    }

    fn make(&self, contents: &Contents) -> Result<Tokens, FileError> {
        let mut tokens: Vec<([u8; 32], Identity)> = Vec::new();
        for (path, bytes) in contents {
            let caller = caller(path)?;
            for token in bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
                if token.is_empty() {
                    continue;
                }
                let hash = check(path, token)?;
                if tokens.iter().any(|(other, name)| *other == hash && *name != caller) {
                    return Err(FileError::new(path, "holds a token of another caller"));
                }
                tokens.push((hash, caller.clone()));
            }
        }
        if tokens.len() > MOST {
            return Err(FileError::new(&self.directory, format!("holds more than {MOST} tokens")));
        }
        Ok(Tokens(tokens))
    }
}

fn caller(path: &Path) -> Result<Identity, FileError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let identity = name.and_then(|name| Identity::new(Kind::Token, name));
    identity.ok_or_else(|| FileError::new(path, "is not called like a caller"))
}

/// Checks a token and returns its hash.
pub(super) fn check(path: &Path, token: &[u8]) -> Result<[u8; 32], FileError> {
    if token.len() < SHORTEST {
        return Err(FileError::new(path, format!("holds a token of less than {SHORTEST} bytes")));
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(FileError::new(path, "holds a token that does not fit into a header"));
    }
    Ok(Sha256::digest(token).into())
}

impl Tokens {
    /// One token, by its hash.
    pub(super) fn one(hash: [u8; 32], identity: Identity) -> Self {
        Self(vec![(hash, identity)])
    }

    /// Finds the identity that a token belongs to. The duration reveals nothing about any token:
    /// the hash is compared with every stored hash, in constant time.
    pub(crate) fn find(&self, shown: &[u8]) -> Option<Identity> {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let mut at = u32::MAX;
        for (position, (hash, _)) in (0..).zip(&self.0) {
            let same: Choice = hash.ct_eq(&shown);
            at.conditional_assign(&position, same);
        }
        self.0.get(at as usize).map(|(_, identity)| identity.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(files: &[(&str, &str)]) -> Result<Tokens, FileError> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let files = TokenFiles::within(directory.path().to_owned());
        files.read().and_then(|contents| files.make(&contents))
    }

    #[test]
    fn every_line_of_a_file_is_a_token_of_its_caller() {
        let files = [
            ("ci", "first-token-0123456789\n\n second-token-0123456789 \n"),
            ("shop", "third-token-0123456789"),
            ("..data", "a-hidden-token-0123456789"),
        ];
        let tokens = tokens(&files).unwrap();
        let find = |token: &str| tokens.find(token.as_bytes()).map(|found| found.to_string());
        assert_eq!(find("first-token-0123456789").unwrap(), "token:ci");
        assert_eq!(find("second-token-0123456789").unwrap(), "token:ci");
        assert_eq!(find("third-token-0123456789").unwrap(), "token:shop");
        for wrong in ["", "third-token-012345678", "a-hidden-token-0123456789"] {
            assert_eq!(find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unsafe_tokens_are_refused_without_being_shown() {
        for (files, problem) in [
            (&[("ci", "short-secret")][..], "less than 16"),
            (&[("ci", "long enough but of words")], "fit into a header"),
            (&[("a", "the-same-0123456789"), ("b", "the-same-0123456789")], "another caller"),
        ] {
            let message = tokens(files).unwrap_err().to_string();
            assert!(message.contains(problem), "{message}");
            assert!(!files.iter().any(|(_, token)| message.contains(token)), "{message}");
        }
    }
}
