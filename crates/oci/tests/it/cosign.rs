//! Signatures made by cosign itself; `tests/data/cosign/README.md` says how.

use std::path::PathBuf;

use outrigger_core::{Digest, Reason};
use outrigger_oci::{
    Reference,
    signature::{PublicKey, Signatures},
};

use crate::{signatures::both, support::client};

const COSIGN: &str = "cosign.pub";
const STRANGER: &str = "stranger.pub";

fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/data/cosign", name].iter().collect()
}

/// An image of the layout and its signatures, unverified.
async fn read(tag: &str) -> (Digest, Signatures) {
    let client = client("x.example");
    let image: Reference = format!("oci:{}:{tag}", data("layout").display()).parse().unwrap();
    let digest = client.resolve(&image).await.unwrap();
    (digest, both(&client, &image, digest).await.unwrap())
}

/// Verifies that one of the signatures is for this digest and by the key in this file.
fn verify(signatures: &Signatures, digest: Digest, key: &str) -> Result<(), Reason> {
    let keys = PublicKey::read(&data(key)).unwrap();
    signatures.verify(digest, &keys).map(drop).map_err(|error| error.failure().reason)
}

#[tokio::test]
async fn cosigns_signatures_verify_with_their_own_key_only() {
    let (invalid, missing) = (Err(Reason::SignatureInvalid), Err(Reason::SignatureMissing));
    for (tag, by_cosign, by_stranger) in [
        ("unsigned", missing, missing),
        ("v2", Ok(()), invalid),
        ("v2-annotated", Ok(()), invalid),
        ("v2-bundle", Ok(()), invalid),
        ("v3", Ok(()), invalid),
        ("v3-annotated", Ok(()), invalid),
        ("v3-index", Ok(()), invalid),
        ("v3-tag", Ok(()), invalid),
        ("v3-stranger", invalid, Ok(())),
        ("v3-tag-stranger", invalid, Ok(())),
        ("v3-twice", Ok(()), Ok(())),
        ("v3-tag-twice", Ok(()), Ok(())),
    ] {
        let (digest, signatures) = read(tag).await;
        assert_eq!(verify(&signatures, digest, COSIGN), by_cosign, "{tag}");
        assert_eq!(verify(&signatures, digest, STRANGER), by_stranger, "{tag}");
    }
}

#[tokio::test]
async fn cosigns_signatures_verify_for_their_own_digest_only() {
    let (other, _) = read("unsigned").await;
    for tag in ["v2", "v2-annotated", "v2-bundle", "v3", "v3-annotated", "v3-tag"] {
        let (digest, signatures) = read(tag).await;
        assert_eq!(verify(&signatures, digest, COSIGN), Ok(()), "{tag}");
        assert_eq!(verify(&signatures, other, COSIGN), Err(Reason::SignatureInvalid), "{tag}");
    }
}
