//! Types shared by registries and layout directories.

use bytes::Bytes;
use outrigger_core::{Digest, Selector};

use crate::{Error, Repository};

/// A manifest or index as stored, and the digest of its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) digest: Digest,
    /// The media type that the registry states, if any.
    pub(crate) media_type: Option<String>,
    pub(crate) body: Bytes,
}

/// Hashes `body`; an error if it was requested by a digest and has another one.
pub(crate) fn verified(
    repository: &Repository,
    selector: &Selector,
    body: Vec<u8>,
    media_type: Option<String>,
) -> Result<Stored, Error> {
    let actual = Digest::of(&body);
    match selector {
        Selector::Digest(expected) if *expected != actual => Err(Error::DigestMismatch {
            what: format!("the content of {repository}@{expected}"),
            expected: *expected,
            actual,
        }),
        _ => Ok(Stored { digest: actual, media_type, body: body.into() }),
    }
}

/// The error for a tag or digest that `repository` does not have.
pub(crate) fn not_found(repository: &Repository, selector: &Selector) -> Error {
    let repository = repository.to_string();
    match selector {
        Selector::Tag(tag) => Error::TagNotFound { repository, tag: tag.to_string() },
        Selector::Digest(digest) => Error::DigestNotFound { repository, digest: *digest },
    }
}
