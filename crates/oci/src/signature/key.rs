//! Public keys.

use std::{fmt, path::Path};

use outrigger_core::Digest;
use rustls::pki_types::{
    SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
    pem::{self, PemObject as _},
};
use webpki::{RawPublicKeyEntity, ring};

/// How signatures are made: what cosign uses for each kind of key.
const ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 5] = [
    ring::ECDSA_P256_SHA256,
    ring::ECDSA_P384_SHA256,
    ring::ECDSA_P384_SHA384,
    ring::ED25519,
    ring::RSA_PKCS1_2048_8192_SHA256,
];

/// More than any file of keys has, bytes.
const MAX_FILE: u64 = 1 << 20;

/// A public key: ECDSA over P-256 or P-384, Ed25519, or RSA of 2048 bits and more.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    spki: SubjectPublicKeyInfoDer<'static>,
}

/// Why a file gives no keys.
#[derive(Debug, thiserror::Error)]
pub enum InvalidKey {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is not PEM.
    #[error("it is not PEM: {0}")]
    Pem(#[from] pem::Error),
    /// It holds something else.
    #[error("it holds no public key in PEM")]
    Empty,
    /// A key of a kind that we do not verify with.
    #[error("key {0} in it is none of ECDSA P-256, ECDSA P-384, Ed25519 and RSA")]
    Unsupported(usize),
}

impl PublicKey {
    /// The keys of a file: one `PUBLIC KEY` block or more. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, holds no key, or one that we cannot use.
    pub fn read(path: &Path) -> Result<Vec<Self>, InvalidKey> {
        use std::io::Read as _;

        let mut text = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut text)?;
        Self::parse(&text)
    }

    /// The keys in `pem`.
    ///
    /// # Errors
    /// There is none, or one that we cannot use.
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

    /// The SHA-256 of the key in DER, by which people tell keys apart.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&self.spki)
    }

    /// Whether `signature` was made over `message` with this key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(key) = RawPublicKeyEntity::try_from(&self.spki) else { return false };
        self.algorithms().any(|it| key.verify_signature(it, message, signature).is_ok())
    }

    /// The algorithms for this kind of key. The others say so when they are tried.
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
