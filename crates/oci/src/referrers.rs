//! Artifacts attached to an image: their manifest names the image as its subject.
//!
//! The registry lists them (the referrers API of OCI 1.1). For a registry without that API, and for
//! a layout directory, clients keep the list themselves, as an index under the tag `sha256-HEX`
//! (the referrers tag schema of the same specification).

use std::collections::BTreeMap;

use bytes::Bytes;
use oci_client::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE};
use outrigger_core::{Digest, Selector, Tag};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Client, Error, Reference, blocking::blocking, client::Place, layout::Layout, manifest,
    push::Content, retry::retrying, source::Stored,
};

/// The media type of the empty configuration of an artifact (OCI 1.1).
const EMPTY_MEDIA_TYPE: &str = "application/vnd.oci.empty.v1+json";
const EMPTY: Bytes = Bytes::from_static(b"{}");

/// The most artifacts of one type that are read for an image; the last ones listed. Anybody with
/// push access can make the list long.
const MAX_READ: usize = 32;

/// An artifact to attach to an image: one document.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The artifact type, which is also the media type of the document.
    pub artifact_type: &'static str,
    /// The document.
    pub document: Bytes,
    /// Annotations of the artifact's manifest.
    pub annotations: BTreeMap<String, String>,
}

/// The documents attached to an image.
#[derive(Debug, Default)]
pub struct Attached {
    /// The readable documents, in the order of the list.
    pub documents: Vec<Bytes>,
    /// The errors of the others.
    pub unusable: Vec<Error>,
}

/// An entry of the list of artifacts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    digest: Digest,
    artifact_type: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List {
    // Kept as raw JSON: entries of other tools may be malformed.
    manifests: Vec<Value>,
}

/// The manifest of an artifact, with its subject.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactManifest {
    schema_version: u8,
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Part,
    layers: Vec<Part>,
    subject: Option<Part>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    media_type: String,
    digest: Digest,
    size: u64,
}

impl Part {
    fn of(media_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self { media_type: media_type.into(), digest: Digest::of(bytes), size: bytes.len() as u64 }
    }
}

impl Client {
    /// Reads the documents of type `artifact_type` that are attached to `digest` in the repository
    /// of `image`: the last 32 listed, of at most `limit` bytes each.
    ///
    /// # Errors
    /// The list or a document cannot be read now, or access to it is denied. Artifacts that can be
    /// read but are malformed are reported in [`Attached::unusable`].
    pub async fn attached(
        &self,
        image: &Reference,
        digest: Digest,
        artifact_type: &str,
        limit: u64,
    ) -> Result<Attached, Error> {
        let list = self.referrers(image, digest).await?;
        let list = list.as_ref().map_or(Vec::new(), |list| entries(list, artifact_type));
        let mut attached = Attached::default();
        for entry in list.iter().rev().take(MAX_READ).rev() {
            match self.document(image, digest, entry.digest, artifact_type, limit).await {
                Ok(Some(document)) => attached.documents.push(document),
                Ok(None) => {}
                Err(error) if error.is_about_content() => attached.unusable.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(attached)
    }

    /// The list of artifacts attached to `digest`, if there is one.
    async fn referrers(&self, image: &Reference, digest: Digest) -> Result<Option<Bytes>, Error> {
        if let Place::Remote(remote) = self.place(image)?
            && let Some(list) = retrying(self.retries(), || remote.referrers(digest)).await?
        {
            return Ok(Some(list.into()));
        }
        Ok(self
            .manifest_if_any(image, &Selector::Tag(list_tag(digest)))
            .await?
            .map(|stored| stored.body))
    }

    /// Reads a manifest; `None` if it does not exist.
    pub(crate) async fn manifest_if_any(
        &self,
        image: &Reference,
        selector: &Selector,
    ) -> Result<Option<Stored>, Error> {
        match self.manifest(image, selector).await {
            Ok(stored) => Ok(Some(stored)),
            Err(
                Error::TagNotFound { .. }
                | Error::DigestNotFound { .. }
                | Error::RepositoryNotFound { .. },
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the document of the artifact `artifact`; `None` if it is of another type.
    async fn document(
        &self,
        image: &Reference,
        subject: Digest,
        artifact: Digest,
        artifact_type: &str,
        limit: u64,
    ) -> Result<Option<Bytes>, Error> {
        let what = format!("the artifact {artifact} of {}", image.repository());
        let stored = self.manifest(image, &Selector::Digest(artifact)).await?;
        let manifest: ArtifactManifest = serde_json::from_slice(&stored.body)
            .map_err(|error| Error::invalid(&what, format!("no artifact's manifest: {error}")))?;
        let kind = manifest.artifact_type.as_ref().unwrap_or(&manifest.config.media_type);
        if kind != artifact_type {
            return Ok(None);
        }
        if manifest.subject.is_none_or(|part| part.digest != subject) {
            return Err(Error::invalid(what, format!("its subject is not {subject}")));
        }
        let document = manifest.layers.iter().find(|layer| layer.media_type == artifact_type);
        let Some(document) = document else {
            return Err(Error::invalid(what, format!("it has no layer of type {artifact_type}")));
        };
        let stored = self.small_blob(image, document.digest, document.size, &what, limit).await?;
        Ok(Some(stored.body))
    }

    /// Attaches an artifact to `digest` in the repository of `image`. Returns the digest of the
    /// artifact's manifest. Attaching an equal artifact again changes nothing.
    ///
    /// If the registry keeps no list, ours is read, extended and written without a lock: an
    /// artifact that another client attaches at the same time may be missing from it.
    pub async fn attach(
        &self,
        image: &Reference,
        digest: Digest,
        artifact: &Artifact,
    ) -> Result<Digest, Error> {
        let manifest = self.artifact_manifest(image, digest, artifact).await?;
        let body = Bytes::from(serde_json::to_vec(&manifest).expect("strings are JSON"));
        let (own, blobs) = (Digest::of(&body), [EMPTY, artifact.document.clone()]);
        let listed = match self.place(image)? {
            Place::Remote(remote) => remote.put_artifact(&blobs, own, body.clone()).await?,
            Place::Layout(layout) => {
                let body = body.clone();
                blocking(move || layout.put_artifact(&blobs, body)).await?;
                false
            }
        };
        if !listed {
            let entry = json!({
                "mediaType": OCI_IMAGE_MEDIA_TYPE,
                "digest": own,
                "size": body.len(),
                "artifactType": artifact.artifact_type,
                "annotations": artifact.annotations,
            });
            self.list(image, digest, own, entry).await?;
        }
        Ok(own)
    }

    async fn artifact_manifest(
        &self,
        image: &Reference,
        digest: Digest,
        artifact: &Artifact,
    ) -> Result<ArtifactManifest, Error> {
        let subject = self.manifest(image, &Selector::Digest(digest)).await?;
        let what = format!("{}@{digest}", image.repository());
        let parsed = manifest::parse(&what, &subject.body, subject.media_type.as_deref())?;
        Ok(ArtifactManifest {
            schema_version: 2,
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            artifact_type: Some(artifact.artifact_type.to_owned()),
            config: Part::of(EMPTY_MEDIA_TYPE, &EMPTY),
            layers: vec![Part::of(artifact.artifact_type, &artifact.document)],
            subject: Some(Part::of(manifest::media_type(&parsed), &subject.body)),
            annotations: artifact.annotations.clone(),
        })
    }

    /// Adds `entry` to the list under the tag `sha256-HEX`, for registries that keep no list.
    async fn list(
        &self,
        image: &Reference,
        subject: Digest,
        artifact: Digest,
        entry: Value,
    ) -> Result<(), Error> {
        let tag = list_tag(subject);
        let stored = self.manifest_if_any(image, &Selector::Tag(tag.clone())).await?;
        let stored = stored.and_then(|stored| serde_json::from_slice(&stored.body).ok());
        let mut list: Value = stored.unwrap_or_else(|| {
            json!({"schemaVersion": 2, "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE, "manifests": []})
        });
        let what = format!("{}:{tag}", image.repository());
        let Some(entries) = list.get_mut("manifests").and_then(Value::as_array_mut) else {
            return Err(Error::invalid(what, "it is no list of referrers"));
        };
        if entries.iter().any(|entry| entry["digest"] == json!(artifact)) {
            return Ok(());
        }
        entries.push(entry);
        let body = Bytes::from(serde_json::to_vec(&list).expect("JSON is JSON"));
        match self.place(image)? {
            Place::Remote(remote) => {
                let tag = Selector::Tag(tag);
                remote.put_manifest(&tag, OCI_IMAGE_INDEX_MEDIA_TYPE, body).await.map(drop)
            }
            Place::Layout(layout) => blocking(move || layout.put_list(&tag, body)).await,
        }
    }
}

impl Layout {
    fn put_artifact(&self, blobs: &[Bytes], manifest: Bytes) -> Result<(), Error> {
        for bytes in blobs.iter().chain([&manifest]) {
            self.put_blob(Digest::of(bytes), &Content::Bytes(bytes.clone()))?;
        }
        Ok(())
    }

    fn put_list(&self, tag: &Tag, list: Bytes) -> Result<(), Error> {
        let digest = Digest::of(&list);
        self.put_blob(digest, &Content::Bytes(list))?;
        self.tag(digest, tag)
    }
}

/// The entries that may be of type `artifact_type`. Some tools list an artifact under its
/// configuration's media type, which is that of the empty configuration; then only its manifest has
/// the type.
fn entries(list: &[u8], artifact_type: &str) -> Vec<Entry> {
    let Ok(list) = serde_json::from_slice::<List>(list) else { return Vec::new() };
    let entries = list.manifests.into_iter().filter_map(|entry| serde_json::from_value(entry).ok());
    let may_be = |entry: &Entry| match entry.artifact_type.as_deref() {
        None | Some(EMPTY_MEDIA_TYPE) => true,
        Some(kind) => kind == artifact_type,
    };
    entries.filter(may_be).collect()
}

/// The tag of the list of artifacts attached to `digest`.
fn list_tag(digest: Digest) -> Tag {
    format!("sha256-{}", digest.hex()).parse().expect("a valid tag")
}
