//! What an image is made of.

use std::collections::BTreeMap;

use bytes::Bytes;
use outrigger_core::{Digest, LayerKind};

use crate::Reference;

/// An image of one platform: its manifest, read and checked, and what its
/// configuration says. Layers are fetched apart.
#[derive(Debug, Clone)]
pub struct Image {
    /// Where it was read, by digest.
    pub reference: Reference,
    /// What the reference meant: the index, for a multi-platform image.
    pub digest: Digest,
    /// The manifest of this platform; equals `digest` for other images.
    pub platform_digest: Digest,
    /// The platform's manifest, as read.
    pub manifest: Bytes,
    /// The manifest's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The labels of the image's configuration.
    pub labels: BTreeMap<String, String>,
    /// The image's configuration, as read.
    pub config: Bytes,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
}

impl Image {
    /// A label; the annotation of that name where there is no such label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).or_else(|| self.annotations.get(name)).map(String::as_str)
    }

    /// Bytes of all layers, as packed.
    pub fn packed_size(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }
}

/// One layer of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layer {
    /// The digest of its bytes, as packed.
    pub digest: Digest,
    /// Bytes, as packed.
    pub size: u64,
    /// How it is packed.
    pub kind: LayerKind,
}
