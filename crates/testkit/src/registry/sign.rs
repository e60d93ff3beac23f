//! Signs images, in the two forms that cosign uses.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use outrigger_core::Digest;
use rcgen::{KeyPair, PublicKeyData as _, SignatureAlgorithm, SigningKey as _};
use serde_json::{Value, json};

use super::{OCI_IMAGE, OCI_INDEX, Registry, layer::descriptor};

const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// A key pair that signs images.
#[derive(Debug)]
pub struct Signer(KeyPair);

impl Signer {
    /// A new key over P-256, cosign's default.
    pub fn new() -> Self {
        Self::of(&rcgen::PKCS_ECDSA_P256_SHA256)
    }

    /// A new key over P-384.
    pub fn p384() -> Self {
        Self::of(&rcgen::PKCS_ECDSA_P384_SHA384)
    }

    /// A new Ed25519 key.
    pub fn ed25519() -> Self {
        Self::of(&rcgen::PKCS_ED25519)
    }

    fn of(algorithm: &'static SignatureAlgorithm) -> Self {
        Self(KeyPair::generate_for(algorithm).expect("keys can be made"))
    }

    /// The public key, PEM.
    pub fn public_key(&self) -> String {
        let der = BASE64_STANDARD.encode(self.0.subject_public_key_info());
        format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
    }

    /// A signature over `message`, base64.
    pub fn sign(&self, message: &[u8]) -> String {
        BASE64_STANDARD.encode(self.0.sign(message).expect("it can sign"))
    }

    /// A signed Sigstore bundle around an in-toto statement.
    pub fn bundle(&self, statement: &Value) -> Value {
        let payload = statement.to_string();
        let message = format!("DSSEv1 {} {IN_TOTO} {} {payload}", IN_TOTO.len(), payload.len());
        json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": "test"}},
            "dsseEnvelope": {
                "payload": BASE64_STANDARD.encode(&payload),
                "payloadType": IN_TOTO,
                "signatures": [{"sig": self.sign(message.as_bytes())}],
            },
        })
    }
}

impl Default for Signer {
    fn default() -> Self {
        Self::new()
    }
}

/// The payload in the simple signing format that cosign signs for an image.
pub fn payload(digest: Digest) -> Value {
    json!({
        "critical": {
            "identity": {"docker-reference": "registry.example/team/churn"},
            "image": {"docker-manifest-digest": digest.to_string()},
            "type": "cosign container image signature",
        },
        "optional": null,
    })
}

/// The in-toto statement that newer versions of cosign sign for an image.
pub fn statement(digest: Digest) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": digest.hex()}}],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    })
}

impl Registry {
    /// Signs an image under the tag `sha256-HEX.sig`.
    pub fn sign(&self, name: &str, digest: Digest, signer: &Signer) {
        let payload = payload(digest).to_string();
        let signature = signer.sign(payload.as_bytes());
        self.push_signatures(name, digest, &[(SIMPLE_SIGNING, payload.into(), signature)]);
    }

    /// Stores payloads with signatures, each with its media type, under the tag `sha256-HEX.sig`.
    pub fn push_signatures(&self, name: &str, digest: Digest, all: &[(&str, Bytes, String)]) {
        let layers = all.iter().map(|(media_type, payload, signature)| {
            self.push_blob(name, payload.clone());
            let mut layer = descriptor(media_type, payload);
            layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
            layer
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI_IMAGE,
            "config": descriptor("application/vnd.oci.image.config.v1+json", b"{}"),
            "layers": layers.collect::<Vec<_>>(),
        });
        self.push_blob(name, "{}");
        let tag = format!("sha256-{}.sig", digest.hex());
        self.push_manifest(name, Some(&tag), OCI_IMAGE, manifest.to_string());
    }

    /// Attaches a document to an image, and lists it under the tag `sha256-HEX`.
    pub fn attach(&self, name: &str, digest: Digest, kind: &str, document: impl Into<Bytes>) {
        let document = document.into();
        let mut subject = descriptor(OCI_IMAGE, b"");
        subject["digest"] = json!(digest.to_string());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI_IMAGE,
            "artifactType": kind,
            "config": descriptor("application/vnd.oci.empty.v1+json", b"{}"),
            "layers": [descriptor(kind, &document)],
            "subject": subject,
        });
        self.push_blob(name, document);
        self.push_blob(name, "{}");
        let manifest = manifest.to_string();
        let mut entry = descriptor(OCI_IMAGE, manifest.as_bytes());
        entry["artifactType"] = json!(kind);
        self.push_manifest(name, None, OCI_IMAGE, manifest);
        let tag = format!("sha256-{}", digest.hex());
        let mut entries = self.listed(name, &tag);
        entries.push(entry);
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
        self.push_manifest(name, Some(&tag), OCI_INDEX, index.to_string());
    }

    fn listed(&self, name: &str, tag: &str) -> Vec<Value> {
        let state = self.shared.lock();
        let content = state.repositories.get(name);
        let index = content.and_then(|all| all.manifest(&all.tagged(tag)?));
        let index: Option<Value> = index.and_then(|index| serde_json::from_slice(&index.body).ok());
        index.and_then(|index| index["manifests"].as_array().cloned()).unwrap_or_default()
    }
}
