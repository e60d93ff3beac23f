//! The token that changes need.

use std::{fs, path::PathBuf};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use subtle::ConstantTimeEq as _;

/// The fewest bytes of a token: a shorter one can be guessed.
const SHORTEST: usize = 16;
/// The most bytes of the file.
const LONGEST: u64 = 4096;

/// The token in a file, which may change. Without a file there are no changes.
#[derive(Debug, Clone)]
pub(crate) struct Token(Option<PathBuf>);

/// The reason why a change is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no token, or it cannot be read.
    Never(String),
    /// Another token was sent, or none.
    Unknown,
}

impl Token {
    /// The token in this file.
    ///
    /// # Errors
    /// The file has no token.
    pub(crate) fn of(file: Option<PathBuf>) -> Result<Self, String> {
        let token = Self(file);
        if token.is_set() {
            token.read()?;
        }
        Ok(token)
    }

    /// True if changes can be made.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Checks that a request has the token. Reads the file.
    ///
    /// # Errors
    /// It has not.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        if !self.is_set() {
            let why = "changes need a token: run the job with --token-file";
            return Err(Refused::Never(why.to_owned()));
        }
        let token = self.read().map_err(Refused::Never)?;
        let sent = headers.get(AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
        let (scheme, sent) = sent.split_at_checked(7).unwrap_or_default();
        let is_same = bool::from(sent.trim_ascii().ct_eq(&token));
        match scheme.eq_ignore_ascii_case(b"Bearer ") && is_same {
            true => Ok(()),
            false => Err(Refused::Unknown),
        }
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        let Some(path) = &self.0 else { return Err("there is no file".to_owned()) };
        let named = |problem: &str| format!("{}: {problem}", path.display());
        let about = fs::metadata(path).map_err(|error| named(&error.to_string()))?;
        if !about.is_file() || about.len() > LONGEST {
            return Err(named("is no file with a token"));
        }
        let content = fs::read(path).map_err(|error| named(&error.to_string()))?;
        let token = content.trim_ascii();
        match token.len() >= SHORTEST && !token.contains(&b'\n') {
            true => Ok(token.to_vec()),
            false => Err(named("must have one token of at least 16 bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().expect("a value"));
        headers
    }

    #[test]
    fn only_the_token_of_the_file_is_accepted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        fs::write(&path, "0123456789abcdef\n").expect("written");
        let token = Token::of(Some(path.clone())).expect("a token");
        assert_eq!(token.check(&with("Bearer 0123456789abcdef")), Ok(()));
        assert_eq!(token.check(&with("bearer  0123456789abcdef ")), Ok(()));
        for other in ["Bearer 0123456789abcdeg", "Basic 0123456789abcdef", "Bearer ", "Bear", ""] {
            assert_eq!(token.check(&with(other)), Err(Refused::Unknown), "{other:?}");
        }
        assert_eq!(token.check(&HeaderMap::new()), Err(Refused::Unknown));
        fs::write(&path, "another-one-of-16-bytes").expect("written");
        assert_eq!(token.check(&with("Bearer another-one-of-16-bytes")), Ok(()));
        fs::remove_file(&path).expect("removed");
        let refused = token.check(&with("Bearer another-one-of-16-bytes"));
        assert!(matches!(refused, Err(Refused::Never(_))), "{refused:?}");
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        assert!(Token::of(Some(path.clone())).is_err(), "there is none");
        let long = "x".repeat(5000);
        for content in ["", "short", "two tokens of some\nlength in a file", &long] {
            fs::write(&path, content).expect("written");
            assert!(Token::of(Some(path.clone())).is_err(), "{} bytes", content.len());
        }
        assert!(Token::of(Some(directory.path().to_owned())).is_err(), "a directory");
    }

    #[test]
    fn without_a_file_there_are_no_changes() {
        let token = Token::of(None).expect("no token");
        let refused = token.check(&with("Bearer "));
        assert!(matches!(refused, Err(Refused::Never(why)) if why.contains("--token-file")));
    }
}
