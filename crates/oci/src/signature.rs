//! Signatures of images, as cosign makes them with a key pair.
//!
//! Two forms are read:
//! - The image manifest under the tag `sha256-HEX.sig`: each layer is a payload
//!   in the simple signing format, its annotation the signature
//!   (cosign's `specs/SIGNATURE_SPEC.md`).
//! - Sigstore bundles attached to the image (`specs/BUNDLE_SPEC.md`): a DSSE
//!   envelope around an in-toto statement of the predicate type with which
//!   cosign signs. Attestations are no signatures: who says how an image was built
//!   has not said that it is to be served.
//!
//! Only keys that are given count: no certificates, no transparency log. A
//! signature is valid for a digest in any repository.

mod bundle;
mod fetch;
mod key;
mod policy;
mod simple;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use outrigger_core::{Digest, Failure, Reason};
use serde::{Deserialize, Serialize};

pub use key::{InvalidKey, PublicKey};
pub use policy::{InvalidRule, Policy, Rule, SignatureRule};

/// What is said to sign an image, as it was read. Nothing of it is believed
/// before [`Signatures::verify`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signatures {
    signed: Vec<Signed>,
    /// What is wrong with those that could not be read.
    #[serde(skip)]
    unusable: Vec<String>,
}

/// A payload and its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Signed {
    form: Form,
    /// Base64, as all bytes here.
    payload: String,
    signature: String,
}

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// Simple signing.
    SimpleSigning,
    /// An in-toto statement in a DSSE envelope.
    InToto,
}

/// Why an image does not count as signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// There is no signature at all.
    #[error("there is no signature of {0}")]
    Missing(Digest),
    /// There are some, and none is good.
    #[error("no signature of {digest} is valid: {problem}")]
    Invalid {
        /// What should be signed.
        digest: Digest,
        /// What is wrong with the one that came nearest.
        problem: String,
    },
}

impl Unverified {
    /// The failure as callers see it.
    pub fn failure(&self) -> Failure {
        let reason = match self {
            Self::Missing(_) => Reason::SignatureMissing,
            Self::Invalid { .. } => Reason::SignatureInvalid,
        };
        Failure::because(reason, self)
    }
}

impl Signatures {
    /// The key by which one of them signs exactly `digest`.
    pub fn verify<'a>(
        &self,
        digest: Digest,
        keys: &'a [PublicKey],
    ) -> Result<&'a PublicKey, Unverified> {
        let mut problem = None;
        for signed in &self.signed {
            match signed.verify(digest, keys) {
                Ok(key) => return Ok(key),
                // The claims of a trusted key tell more than a stranger's signature.
                Err(found @ Problem::Claims(_)) => problem = Some(found),
                Err(found) => problem = problem.or(Some(found)),
            }
        }
        match (problem, self.unusable.first()) {
            (Some(problem), _) => Err(Unverified::Invalid { digest, problem: problem.to_string() }),
            (None, Some(problem)) => Err(Unverified::Invalid { digest, problem: problem.clone() }),
            (None, None) => Err(Unverified::Missing(digest)),
        }
    }

    /// Whether nothing that could be a signature was found.
    pub fn is_empty(&self) -> bool {
        self.signed.is_empty()
    }

    /// Adds those of `others`.
    pub fn extend(&mut self, others: Self) {
        self.signed.extend(others.signed);
        self.unusable.extend(others.unusable);
    }

    fn add(&mut self, signed: Result<Signed, String>) {
        match signed {
            Ok(signed) => self.signed.push(signed),
            Err(problem) => self.unusable.push(problem),
        }
    }
}

/// What is wrong with a signature.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("it is not base64")]
    Encoding,
    #[error("it was not made with one of the keys, or over something else")]
    Signature,
    #[error("it says {0}")]
    Claims(String),
}

impl Signed {
    fn verify<'a>(&self, digest: Digest, keys: &'a [PublicKey]) -> Result<&'a PublicKey, Problem> {
        let decode = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| Problem::Encoding);
        let (payload, signature) = (decode(&self.payload)?, decode(&self.signature)?);
        let message = match self.form {
            Form::SimpleSigning => payload.clone(),
            Form::InToto => bundle::envelope(&payload),
        };
        // What the payload says is read only once its author is known.
        let key = keys.iter().find(|key| key.verifies(&message, &signature));
        let key = key.ok_or(Problem::Signature)?;
        let claims = match self.form {
            Form::SimpleSigning => simple::check(&payload, digest),
            Form::InToto => bundle::check(&payload, digest),
        };
        claims.map_err(Problem::Claims).map(|()| key)
    }
}

#[cfg(test)]
mod tests;
