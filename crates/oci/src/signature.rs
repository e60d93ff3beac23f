//! Signatures of images, as cosign makes them with a key pair.
//!
//! Two forms are supported:
//! - The image manifest under the tag `sha256-HEX.sig`: each layer is a payload
//!   in the simple signing format, its annotation the signature
//!   (cosign's `specs/SIGNATURE_SPEC.md`).
//! - Sigstore bundles attached to the image (`specs/BUNDLE_SPEC.md`): a DSSE envelope around an
//!   in-toto statement, with the predicate type that cosign uses for signatures. Attestations do
//!   not count: a statement about how an image was built does not permit serving it.
//!
//! Only the configured keys count; certificates and transparency logs are not used. A signature is
//! valid for a digest in any repository.

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

/// Signatures of an image as they were read, not yet verified. Only [`Signatures::verify`] checks
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signatures {
    signed: Vec<Signed>,
    /// The problems of those that could not be read.
    #[serde(skip)]
    unusable: Vec<String>,
}

/// One payload with its signature, both in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Signed {
    form: Form,
    /// The signed bytes.
    payload: String,
    signature: String,
}

/// The format of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// The simple signing format.
    SimpleSigning,
    /// An in-toto statement in a DSSE envelope.
    InToto,
}

/// The reason why an image does not count as signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// The image has no signature.
    #[error("there is no signature of {0}")]
    Missing(Digest),
    /// The image has signatures, but none is valid.
    #[error("no signature of {digest} is valid: {problem}")]
    Invalid {
        /// The digest that should be signed.
        digest: Digest,
        /// The problem of the signature that came closest to being valid.
        problem: String,
    },
}

impl Unverified {
    /// The failure that callers of the API receive.
    pub fn failure(&self) -> Failure {
        let reason = match self {
            Self::Missing(_) => Reason::SignatureMissing,
            Self::Invalid { .. } => Reason::SignatureInvalid,
        };
        Failure::because(reason, self)
    }
}

impl Signatures {
    /// Finds the key with which one of the signatures signs exactly `digest`.
    pub fn verify<'a>(
        &self,
        digest: Digest,
        keys: &'a [PublicKey],
    ) -> Result<&'a PublicKey, Unverified> {
        let mut problem = None;
        for signed in &self.signed {
            match signed.verify(digest, keys) {
                Ok(key) => return Ok(key),
                // A trusted key's wrong claim is the more useful error than a stranger's signature.
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

    /// True if no readable signature was found.
    pub fn is_empty(&self) -> bool {
        self.signed.is_empty()
    }

    /// Adds the signatures of `others`.
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

/// The problem of one signature.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("it is not base64")]
    Encoding,
    #[error("it was made with another key, or over other bytes")]
    Signature,
    #[error("its payload {0}")]
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
        // The payload is parsed only after its author is known.
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
