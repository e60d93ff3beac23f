//! Getting what is said to sign an image.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use outrigger_core::{Digest, Selector, Tag};
use serde::Deserialize;

use super::{Form, Signatures, Signed, bundle, simple};
use crate::{Client, Error, Reference};

/// Of the signatures under the tag so many are read: the last ones.
const MAX_SIGNATURES: usize = 32;
/// A payload names a digest and little more, bytes.
const MAX_PAYLOAD: u64 = 64 << 10;
/// A bundle may hold proofs of a transparency log as well, bytes.
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
    /// What signs `digest` of the repository of `image` under the tag
    /// `sha256-HEX.sig`.
    ///
    /// # Errors
    /// The registry cannot be asked for now, or refuses us. What it has and is no
    /// signature is told by [`Signatures::verify`].
    pub async fn tagged_signatures(
        &self,
        image: &Reference,
        digest: Digest,
    ) -> Result<Signatures, Error> {
        let mut signatures = Signatures::default();
        let tag: Tag = format!("sha256-{}.sig", digest.hex()).parse().expect("a valid tag");
        let stored = match self.if_there(image, &Selector::Tag(tag)).await {
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

    /// What signs `digest` of the repository of `image` in bundles attached to it.
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
