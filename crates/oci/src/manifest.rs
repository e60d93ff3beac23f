//! Manifests and indexes, of OCI and of Docker's schema v2.2.

use std::collections::BTreeMap;

use oci_client::manifest::{
    IMAGE_DOCKER_LAYER_GZIP_MEDIA_TYPE, IMAGE_DOCKER_LAYER_TAR_MEDIA_TYPE,
    IMAGE_LAYER_GZIP_MEDIA_TYPE, IMAGE_LAYER_MEDIA_TYPE,
    IMAGE_LAYER_NONDISTRIBUTABLE_GZIP_MEDIA_TYPE, IMAGE_LAYER_NONDISTRIBUTABLE_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, ImageIndexEntry,
    OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageIndex,
    OciImageManifest,
};
use outrigger_core::{Digest, LayerKind};
use serde::Deserialize;

use crate::{Error, Layer, config::Platform};

/// The media types that we read, for the `Accept` header.
pub(crate) const ACCEPTED: [&str; 4] = [
    OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE,
];

const ZSTD_LAYERS: [&str; 2] = [
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
];
/// The annotation by which BuildKit marks index entries that describe other entries (attestations).
const ATTESTATION: &str = "vnd.docker.reference.type";

/// A parsed manifest.
#[derive(Debug)]
pub(crate) enum Manifest {
    Image(Box<OciImageManifest>),
    Index(OciImageIndex),
}

/// A descriptor with a valid digest and size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// The fields that distinguish an index from an image, and schema 2 from older ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: Option<u64>,
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
}

/// Parses a manifest. The fields present decide whether it is an image or an index; the media type,
/// the document's own or else the `Content-Type` in `media_type`, only appears in the error.
pub(crate) fn parse(what: &str, body: &[u8], media_type: Option<&str>) -> Result<Manifest, Error> {
    let unreadable =
        |error: serde_json::Error| Error::invalid(what, format!("no manifest: {error}"));
    let shape: Shape = serde_json::from_slice(body).map_err(unreadable)?;
    if shape.schema_version != Some(2) {
        let problem = "only manifests of schema version 2 are read (Docker v2.2 and OCI)";
        return Err(Error::invalid(what, problem));
    }
    match (shape.manifests.is_some(), shape.layers.is_some()) {
        (true, false) => serde_json::from_slice(body).map(Manifest::Index).map_err(unreadable),
        (false, true) => serde_json::from_slice(body).map(Manifest::Image).map_err(unreadable),
        _ => {
            let kind = shape.media_type.as_deref().or(media_type).unwrap_or("unknown");
            let problem = format!("neither an image nor an index (media type {kind})");
            Err(Error::invalid(what, problem))
        }
    }
}

/// The media type under which a manifest is stored.
pub(crate) fn media_type(manifest: &Manifest) -> String {
    let (own, default) = match manifest {
        Manifest::Image(image) => (&image.media_type, OCI_IMAGE_MEDIA_TYPE),
        Manifest::Index(index) => (&index.media_type, OCI_IMAGE_INDEX_MEDIA_TYPE),
    };
    own.clone().unwrap_or_else(|| default.to_owned())
}

/// Chooses the index's image for `platform`. An index with a single image gives that image for any
/// platform.
pub(crate) fn choose(
    what: &str,
    index: &OciImageIndex,
    platform: &Platform,
) -> Result<Descriptor, Error> {
    let images: Vec<_> = index.manifests.iter().filter(|entry| is_image(entry)).collect();
    let matching = images.iter().find(|entry| runs_on(entry, platform));
    let chosen = match (matching, images.as_slice()) {
        (Some(entry), _) => entry,
        (None, [only]) => only,
        (None, _) => {
            let Platform { os, architecture } = platform;
            let has: Vec<_> = images.iter().map(|entry| platform_of(entry)).collect();
            let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            let problem = format!("no image for {os}/{architecture}; there is {has}");
            return Err(Error::invalid(what, problem));
        }
    };
    checked(what, &chosen.digest, chosen.size)
}

fn is_image(entry: &ImageIndexEntry) -> bool {
    let kind = [OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];
    let attests = entry.annotations.as_ref().is_some_and(|all| all.contains_key(ATTESTATION));
    kind.contains(&entry.media_type.as_str()) && !attests
}

fn runs_on(entry: &ImageIndexEntry, platform: &Platform) -> bool {
    entry.platform.as_ref().is_some_and(|theirs| {
        theirs.os.to_string() == platform.os
            && theirs.architecture.to_string() == platform.architecture
    })
}

fn platform_of(entry: &ImageIndexEntry) -> String {
    let platform = entry.platform.as_ref();
    platform.map_or("unknown".to_owned(), |theirs| format!("{}/{}", theirs.os, theirs.architecture))
}

/// Checks a descriptor's digest and size.
pub(crate) fn checked(what: &str, digest: &str, size: i64) -> Result<Descriptor, Error> {
    let digest = digest.parse().map_err(|error| Error::invalid(what, format!("{error}")))?;
    let size = u64::try_from(size)
        .map_err(|_| Error::invalid(what, format!("{digest} has {size} bytes")))?;
    Ok(Descriptor { digest, size })
}

/// The layers of an image, lowest first.
pub(crate) fn layers(what: &str, image: &OciImageManifest) -> Result<Vec<Layer>, Error> {
    image.layers.iter().enumerate().map(|(at, layer)| self::layer(what, at, layer)).collect()
}

fn layer(what: &str, at: usize, layer: &OciDescriptor) -> Result<Layer, Error> {
    let kind = layer_kind(&layer.media_type).ok_or_else(|| {
        let problem = format!("layer {at} is no tar archive (media type {})", layer.media_type);
        Error::invalid(what, problem)
    })?;
    let Descriptor { digest, size } = checked(what, &layer.digest, layer.size)?;
    Ok(Layer { digest, size, kind })
}

fn layer_kind(media_type: &str) -> Option<LayerKind> {
    match media_type {
        IMAGE_LAYER_MEDIA_TYPE
        | IMAGE_DOCKER_LAYER_TAR_MEDIA_TYPE
        | IMAGE_LAYER_NONDISTRIBUTABLE_MEDIA_TYPE => Some(LayerKind::Tar),
        IMAGE_LAYER_GZIP_MEDIA_TYPE
        | IMAGE_DOCKER_LAYER_GZIP_MEDIA_TYPE
        | IMAGE_LAYER_NONDISTRIBUTABLE_GZIP_MEDIA_TYPE => Some(LayerKind::TarGzip),
        zstd if ZSTD_LAYERS.contains(&zstd) => Some(LayerKind::TarZstd),
        _ => None,
    }
}

/// The media type under which a layer of this format is pushed.
pub(crate) fn layer_media_type(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Tar => IMAGE_LAYER_MEDIA_TYPE,
        LayerKind::TarGzip => IMAGE_LAYER_GZIP_MEDIA_TYPE,
        LayerKind::TarZstd => ZSTD_LAYERS[0],
    }
}

/// The labels in an image's configuration; empty if it has none, as the configuration of an
/// artifact.
pub(crate) fn labels(what: &str, config: &[u8]) -> Result<BTreeMap<String, String>, Error> {
    #[derive(Deserialize)]
    struct File {
        config: Option<Inner>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Inner {
        labels: Option<BTreeMap<String, String>>,
    }
    let file: File = serde_json::from_slice(config)
        .map_err(|error| Error::invalid(what, format!("no image configuration: {error}")))?;
    Ok(file.config.and_then(|inner| inner.labels).unwrap_or_default())
}

#[cfg(test)]
mod tests;
