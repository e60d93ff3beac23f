//! Pushing an image to a registry.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use bytes::Bytes;
use oci_client::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest,
};
use outrigger_core::{Digest, Selector};
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderName, LOCATION},
};

use crate::{
    Error, Layer,
    manifest::{self, layer_media_type},
    registry::Remote,
    retry::retrying,
    transport::{Body, Call},
};

/// The header of a registry that lists artifacts by their subject (OCI distribution 1.1).
const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

/// An image to push. Equal content gives an equal digest.
#[derive(Debug, Clone)]
pub struct ImageToPush {
    /// The layers, lowest first.
    pub layers: Vec<LayerToPush>,
    /// The image's configuration, JSON.
    pub config: Bytes,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
    /// The manifest of an image that is pushed as it was pulled, to the byte.
    pub original: Option<Bytes>,
}

/// A layer to push.
#[derive(Debug, Clone)]
pub struct LayerToPush {
    /// The layer's digest, size and format; they must match `content`.
    pub layer: Layer,
    /// The layer's bytes.
    pub content: Content,
}

/// A blob's content, in memory or in a file.
#[derive(Debug, Clone)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file, which must not change while the image is pushed.
    File {
        /// The file's path.
        path: PathBuf,
        /// The temporary directory that holds the file; it is removed with the image.
        keep: Option<Arc<tempfile::TempDir>>,
    },
}

impl ImageToPush {
    /// The bytes of the manifest, as they will be stored.
    pub fn manifest(&self) -> Bytes {
        if let Some(original) = &self.original {
            return original.clone();
        }
        let annotations = (!self.annotations.is_empty()).then(|| self.annotations.clone());
        let manifest = OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: descriptor(
                IMAGE_CONFIG_MEDIA_TYPE,
                Digest::of(&self.config),
                self.config.len() as u64,
            ),
            layers: self.layers.iter().map(LayerToPush::descriptor).collect(),
            annotations,
            ..OciImageManifest::default()
        };
        serde_json::to_vec(&manifest).expect("strings and numbers are JSON").into()
    }

    /// The digest of the manifest.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest())
    }

    /// All blobs: the layers, then the configuration.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = (Digest, u64, Content)> + '_ {
        let layers = self
            .layers
            .iter()
            .map(|layer| (layer.layer.digest, layer.layer.size, layer.content.clone()));
        let config = Content::Bytes(self.config.clone());
        layers.chain([(Digest::of(&self.config), self.config.len() as u64, config)])
    }
}

impl LayerToPush {
    /// Makes a layer from bytes in memory.
    pub fn from_bytes(kind: outrigger_core::LayerKind, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let layer = Layer { digest: Digest::of(&bytes), size: bytes.len() as u64, kind };
        Self { layer, content: Content::Bytes(bytes) }
    }

    fn descriptor(&self) -> OciDescriptor {
        descriptor(layer_media_type(self.layer.kind), self.layer.digest, self.layer.size)
    }
}

fn descriptor(media_type: &str, digest: Digest, size: u64) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: digest.to_string(),
        size: i64::try_from(size).expect("no file has that many bytes"),
        ..OciDescriptor::default()
    }
}

impl Remote<'_> {
    /// Pushes the blobs that the repository does not have, then the manifest.
    pub(crate) async fn push(&self, selector: &Selector, image: &ImageToPush) -> Result<(), Error> {
        for (digest, size, content) in image.blobs() {
            let body = match content {
                Content::Bytes(bytes) => Body::Bytes(bytes),
                Content::File { path, .. } => Body::File { path, size },
            };
            retrying(&self.config.retries, || self.push_blob(digest, &body)).await?;
        }
        let manifest = image.manifest();
        let parsed = manifest::parse("the image", &manifest, None)?;
        self.put_manifest(selector, &manifest::media_type(&parsed), manifest).await.map(drop)
    }

    /// Pushes an artifact with a subject. Returns true if the registry lists it under the subject
    /// itself.
    pub(crate) async fn put_artifact(
        &self,
        blobs: &[Bytes],
        digest: Digest,
        manifest: Bytes,
    ) -> Result<bool, Error> {
        for bytes in blobs {
            let body = Body::Bytes(bytes.clone());
            retrying(&self.config.retries, || self.push_blob(Digest::of(bytes), &body)).await?;
        }
        let selector = Selector::Digest(digest);
        let answer = self.put_manifest(&selector, OCI_IMAGE_MEDIA_TYPE, manifest).await?;
        Ok(answer.headers().contains_key(SUBJECT))
    }

    pub(crate) async fn put_manifest(
        &self,
        selector: &Selector,
        media_type: &str,
        manifest: Bytes,
    ) -> Result<Response, Error> {
        let text = match selector {
            Selector::Tag(tag) => tag.to_string(),
            Selector::Digest(digest) => digest.to_string(),
        };
        let put = || async {
            let headers = vec![(CONTENT_TYPE, media_type.to_owned())];
            let body = Body::Bytes(manifest.clone());
            let url = self.url(&format!("manifests/{text}"));
            let response = self.push_call(Method::PUT, url, headers, body).await?;
            self.created(&response).map(|()| response)
        };
        retrying(&self.config.retries, put).await
    }

    async fn push_blob(&self, digest: Digest, body: &Body) -> Result<(), Error> {
        let url = self.url(&format!("blobs/{digest}"));
        let head = self.push_call(Method::HEAD, url, Vec::new(), Body::Empty).await?;
        if head.status().is_success() {
            tracing::debug!(%digest, "blob exists");
            return Ok(());
        }
        let start = self.url("blobs/uploads/");
        let started = self.push_call(Method::POST, start, Vec::new(), Body::Empty).await?;
        if started.status() != StatusCode::ACCEPTED {
            return Err(self.unexpected(started.status()));
        }
        let mut url = self.upload_url(&started)?;
        url.query_pairs_mut().append_pair("digest", &digest.to_string());
        let headers = vec![(CONTENT_TYPE, "application/octet-stream".to_owned())];
        let response = self.push_call(Method::PUT, url, headers, body.clone()).await?;
        self.created(&response)
    }

    /// The URL for an upload's bytes, from the registry's `Location`, which may be relative.
    fn upload_url(&self, started: &Response) -> Result<Url, Error> {
        let location = started.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let url = location.and_then(|location| started.url().join(location).ok());
        url.ok_or_else(|| {
            Error::invalid(
                self.host(),
                "the answer to the start of an upload has no valid Location",
            )
        })
    }

    fn created(&self, response: &Response) -> Result<(), Error> {
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND => {
                Err(Error::RepositoryNotFound { repository: self.repository.to_string() })
            }
            status => Err(self.unexpected(status)),
        }
    }

    async fn push_call(
        &self,
        method: Method,
        url: Url,
        headers: Vec<(HeaderName, String)>,
        body: Body,
    ) -> Result<Response, Error> {
        let call = Call { scope: &self.push, method, url, headers, body };
        self.transport.call(&call).await
    }
}
