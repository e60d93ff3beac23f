//! Fetches the signatures of an image.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use outrigger_core::{Digest, Selector, Tag};
use serde::Deserialize;

use super::{Form, Signatures, Signed, bundle, simple};
use crate::{Client, Error, Reference};

/// The most signatures read from the signature tag; the last ones listed.
const MAX_SIGNATURES: usize = 32;
/// The size limit of a payload, bytes; it holds a digest and little more.
const MAX_PAYLOAD: u64 = 64 << 10;
/// The size limit of a bundle, bytes; it may also hold proofs of a transparency log.
const MAX_BUNDLE: u64 = 256 << 10;

#[derive(Deserialize)]
struct SignatureManifest {
    layers: Vec<SignatureLayer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureLayer {
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Client {
    /// Fetches the signatures of `digest` in the repository of `image` that are stored under the
    /// tag `sha256-HEX.sig`.
    ///
    /// # Errors
    /// The registry is unavailable or denies access. Layers that are no valid signature cause no
    /// error here; [`Signatures::verify`] reports them.
    pub async fn tagged_signatures(
        &self,
        image: &Reference,
        digest: Digest,
    ) -> Result<Signatures, Error> {
        let mut signatures = Signatures::default();
        let tag: Tag = format!("sha256-{}.sig", digest.hex()).parse().expect("a valid tag");
        let stored = match self.manifest_if_any(image, &Selector::Tag(tag)).await {
            Ok(stored) => stored,
            Err(error) if error.is_about_content() => {
                signatures.unusable.push(error.to_string());
                None
            }
            Err(error) => return Err(error),
        };
        let Some(stored) = stored else { return Ok(signatures) };
        let manifest: SignatureManifest = match serde_json::from_slice(&stored.body) {
            Ok(manifest) => manifest,
            Err(error) => {
                signatures.unusable.push(format!("its manifest cannot be read: {error}"));
                return Ok(signatures);
            }
        };
        for layer in manifest.layers.iter().rev().take(MAX_SIGNATURES) {
            signatures.add(self.signed_layer(image, layer).await?);
        }
        Ok(signatures)
    }

    async fn signed_layer(
        &self,
        image: &Reference,
        layer: &SignatureLayer,
    ) -> Result<Result<Signed, String>, Error> {
        if layer.media_type != simple::MEDIA_TYPE {
            return Ok(Err(format!("a layer is no payload but {:?}", layer.media_type)));
        }
        let Some(signature) = layer.annotations.get(simple::SIGNATURE) else {
            return Ok(Err("a payload has no signature".to_owned()));
        };
        let what = format!("the payload of a signature in {}", image.repository());
        let read = self.small_blob(image, layer.digest, layer.size, &what, MAX_PAYLOAD).await;
        match read {
            Ok(stored) => Ok(Ok(Signed {
                form: Form::SimpleSigning,
                payload: BASE64_STANDARD.encode(&stored.body),
                signature: signature.clone(),
            })),
            Err(error) if error.is_about_content() => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Fetches the signatures of `digest` in the repository of `image` that are attached to it as
    /// bundles.
    ///
    /// # Errors
    /// As [`Client::tagged_signatures`].
    pub async fn attached_signatures(
        &self,
        image: &Reference,
        digest: Digest,
    ) -> Result<Signatures, Error> {
        let attached = self.attached(image, digest, bundle::MEDIA_TYPE, MAX_BUNDLE).await?;
        let mut signatures = Signatures::default();
        attached.documents.iter().for_each(|document| signatures.add(bundle::read(document)));
        signatures.unusable.extend(attached.unusable.iter().map(ToString::to_string));
        Ok(signatures)
    }
}
