//! Payloads in the simple signing format.

use outrigger_core::Digest;
use serde::Deserialize;

/// The media type of a payload.
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of a payload's descriptor that holds the signature.
pub(super) const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

const TYPE: &str = "cosign container image signature";

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    r#type: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Checks that the payload signs `digest`. The caller has verified the author. The repository in
/// the payload is ignored, as cosign does: a copy of an image in another repository is the same
/// image.
pub(super) fn check(payload: &[u8], digest: Digest) -> Result<(), String> {
    let payload: Payload =
        serde_json::from_slice(payload).map_err(|error| format!("cannot be read: {error}"))?;
    let Critical { image, r#type } = payload.critical;
    if r#type != TYPE {
        return Err(format!("is of another type, {:?}", shortened(&r#type)));
    }
    if image.digest != digest.to_string() {
        return Err(format!("is for {:?}", shortened(&image.digest)));
    }
    Ok(())
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
