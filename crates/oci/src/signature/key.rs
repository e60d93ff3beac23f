//! Public keys that verify signatures.

use std::{fmt, path::Path};

use outrigger_core::Digest;
use rustls::pki_types::{
    SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    pem::{self, PemObject as _},
};
use webpki::{RawPublicKeyEntity, ring};

/// The signature algorithms that cosign uses, for all kinds of keys.
const ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 5] = [
    ring::ECDSA_P256_SHA256,
    ring::ECDSA_P384_SHA256,
    ring::ECDSA_P384_SHA384,
    ring::ED25519,
    ring::RSA_PKCS1_2048_8192_SHA256,
];

/// The most bytes read of a key file; real ones are far smaller.
const MAX_FILE: u64 = 1 << 20;

/// A public key: ECDSA over P-256 or P-384, Ed25519, or RSA of 2048 bits and more.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    spki: SubjectPublicKeyInfoDer<'static>,
}

/// The reason why a file cannot be used as a key file.
#[derive(Debug, thiserror::Error)]
pub enum InvalidKey {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is not valid PEM.
    #[error("it is not PEM: {0}")]
    Pem(#[from] pem::Error),
    /// The file has no `PUBLIC KEY` block.
    #[error("it holds no public key in PEM")]
    Empty,
    /// A key of an unsupported kind; the number counts from 1.
    #[error("key {0} in it is none of ECDSA P-256, ECDSA P-384, Ed25519 and RSA")]
    Unsupported(usize),
}

impl PublicKey {
    /// Reads the keys of a file: one `PUBLIC KEY` block or more. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, has no key, or has one of an unsupported kind.
    pub fn read(path: &Path) -> Result<Vec<Self>, InvalidKey> {
        use std::io::Read as _;

        let mut text = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut text)?;
        Self::parse(&text)
    }

    /// Parses the keys in `pem`.
    ///
    /// # Errors
    /// There is no key, or one of an unsupported kind.
    pub fn parse(pem: &[u8]) -> Result<Vec<Self>, InvalidKey> {
        let mut keys = Vec::new();
        for spki in SubjectPublicKeyInfoDer::pem_slice_iter(pem) {
            let key = Self { spki: spki? };
            if key.algorithms().next().is_none() {
                return Err(InvalidKey::Unsupported(keys.len() + 1));
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(InvalidKey::Empty) } else { Ok(keys) }
    }

    /// The SHA-256 of the key in DER, the usual fingerprint.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&self.spki)
    }

    /// True if `signature` was made over `message` with this key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(key) = RawPublicKeyEntity::try_from(&self.spki) else { return false };
        self.algorithms().any(|it| key.verify_signature(it, message, signature).is_ok())
    }

    /// The algorithms for this kind of key. The key's kind is not accessible, so each algorithm is
    /// tried: one that does not fit reports it, one that fits rejects the empty signature.
    fn algorithms(&self) -> impl Iterator<Item = &'static dyn SignatureVerificationAlgorithm> {
        let key = RawPublicKeyEntity::try_from(&self.spki).ok();
        ALGORITHMS.into_iter().filter(move |algorithm| {
            let tried = key.as_ref().map(|key| key.verify_signature(*algorithm, b"", b""));
            matches!(tried, Some(Err(webpki::Error::InvalidSignatureForPublicKey)))
        })
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}
