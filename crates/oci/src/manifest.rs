//! Manifests and indexes, of OCI and of Docker's schema v2.2.

use std::collections::BTreeMap;

use oci_client::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_DOCKER_CONFIG_MEDIA_TYPE, IMAGE_DOCKER_LAYER_GZIP_MEDIA_TYPE,
    IMAGE_DOCKER_LAYER_TAR_MEDIA_TYPE, IMAGE_LAYER_GZIP_MEDIA_TYPE, IMAGE_LAYER_MEDIA_TYPE,
    IMAGE_LAYER_NONDISTRIBUTABLE_GZIP_MEDIA_TYPE, IMAGE_LAYER_NONDISTRIBUTABLE_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, ImageIndexEntry,
    OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageIndex,
    OciImageManifest,
};
use outrigger_core::{Digest, LayerKind};
use serde::Deserialize;

use crate::{Error, Layer, Platform};

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

/// The most entries without a platform whose manifests are read.
const MAX_UNNAMED: usize = 16;

/// A parsed manifest.
#[derive(Debug)]
pub(crate) enum Manifest {
    Image(Box<OciImageManifest>),
    Index(OciImageIndex),
}

/// The image of an index for a platform.
#[derive(Debug)]
pub(crate) enum Choice {
    /// It is known by its entry.
    Image(Descriptor),
    /// Manifests tell which of several entries it is.
    Among(Among),
}

/// Entries of which one is the image: the only image among those that name no platform, or else the
/// only one that does. The others are artifacts.
#[derive(Debug)]
pub(crate) struct Among {
    pub(crate) unnamed: Vec<Descriptor>,
    pub(crate) only_named: Option<Descriptor>,
    /// The error if there is no such image.
    pub(crate) none: Error,
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
) -> Result<Choice, Error> {
    let mut images: Vec<_> = index.manifests.iter().filter(|entry| is_image(entry)).collect();
    let plain = |entry: &&ImageIndexEntry| entry.artifact_type.is_none();
    if images.iter().any(plain) {
        images.retain(plain);
    }
    let rank = |entry: &&&ImageIndexEntry| platform.rank(entry.platform.as_ref()?);
    let matching = images.iter().filter(|entry| rank(entry).is_some()).min_by_key(rank);
    let checked = |entry: &ImageIndexEntry| checked(what, &entry.digest, entry.size);
    if let Some(chosen) = matching.or(images.first().filter(|_| images.len() == 1)) {
        return checked(chosen).map(Choice::Image);
    }
    let none = no_image(what, &images, platform);
    let (named, unnamed): (Vec<_>, Vec<_>) =
        images.into_iter().partition(|entry| entry.platform.is_some());
    if unnamed.is_empty() || unnamed.len() > MAX_UNNAMED {
        return Err(none);
    }
    Ok(Choice::Among(Among {
        unnamed: unnamed.into_iter().map(checked).collect::<Result<_, _>>()?,
        only_named: if let [only] = named[..] { Some(checked(only)?) } else { None },
        none,
    }))
}

fn no_image(what: &str, images: &[&ImageIndexEntry], platform: &Platform) -> Error {
    let Platform { os, architecture, .. } = platform;
    let has: Vec<_> = images.iter().map(|entry| platform_of(entry)).collect();
    let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
    Error::invalid(what, format!("no image for {os}/{architecture}; there is {has}"))
}

fn is_image(entry: &ImageIndexEntry) -> bool {
    let kind = [OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];
    let attests = entry.annotations.as_ref().is_some_and(|all| all.contains_key(ATTESTATION))
        || platform_of(entry) == "unknown/unknown";
    kind.contains(&entry.media_type.as_str()) && !attests
}

fn platform_of(entry: &ImageIndexEntry) -> String {
    let Some(theirs) = &entry.platform else { return "one without a platform".to_owned() };
    let variant = theirs.variant.iter().filter(|variant| !variant.is_empty());
    let parts = [theirs.os.to_string(), theirs.architecture.to_string()];
    parts.into_iter().chain(variant.cloned()).collect::<Vec<_>>().join("/")
}

/// True if this is an image that containers run, and not an artifact of another kind.
pub(crate) fn is_runnable(image: &OciImageManifest) -> bool {
    let configs = [IMAGE_CONFIG_MEDIA_TYPE, IMAGE_DOCKER_CONFIG_MEDIA_TYPE];
    image.artifact_type.is_none() && configs.contains(&image.config.media_type.as_str())
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
