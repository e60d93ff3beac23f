//! Sigstore bundles: a DSSE envelope around an in-toto statement.

use outrigger_core::Digest;
use serde::Deserialize;

use super::{Form, Signed};

/// The artifact type, the media type of its layer, and the bundle's own media type.
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPES: [&str; 2] =
    ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];
/// The predicate type of cosign's signatures.
const PREDICATE_TYPE: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    dsse_envelope: Option<Envelope>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: SubjectDigest,
}

#[derive(Deserialize)]
struct SubjectDigest {
    sha256: Option<String>,
}

/// Reads the signed statement of a bundle.
pub(super) fn read(document: &[u8]) -> Result<Signed, String> {
    let bundle: Bundle = serde_json::from_slice(document)
        .map_err(|error| format!("a bundle cannot be read: {error}"))?;
    if bundle.media_type != MEDIA_TYPE {
        return Err("a bundle is of another version than 0.3".to_owned());
    }
    let envelope = bundle.dsse_envelope.ok_or("a bundle has no DSSE envelope")?;
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err("a bundle's payload is no in-toto statement".to_owned());
    }
    let [Signature { sig: signature }] = <[_; 1]>::try_from(envelope.signatures)
        .map_err(|all| format!("a bundle has {} signatures instead of one", all.len()))?;
    Ok(Signed { form: Form::InToto, payload: envelope.payload, signature })
}

/// The signed bytes: DSSE's pre-authentication encoding of type and payload.
pub(super) fn envelope(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", PAYLOAD_TYPE.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// Checks that the statement signs `digest`. The caller has verified the author.
pub(super) fn check(payload: &[u8], digest: Digest) -> Result<(), String> {
    let statement: Statement =
        serde_json::from_slice(payload).map_err(|error| format!("cannot be read: {error}"))?;
    if !STATEMENT_TYPES.contains(&statement.kind.as_str()) {
        return Err("is no in-toto statement".to_owned());
    }
    if statement.predicate_type != PREDICATE_TYPE {
        return Err("is an attestation of another kind than cosign's signatures".to_owned());
    }
    let hex = digest.hex();
    match statement.subject.iter().any(|it| it.digest.sha256.as_deref() == Some(&hex)) {
        true => Ok(()),
        false => Err("is for another digest".to_owned()),
    }
}
