//! An image and its layers.

use std::collections::BTreeMap;

use bytes::Bytes;
use outrigger_core::{Digest, LayerKind};

use crate::Reference;

/// An image of one platform: its manifest and configuration, read and checked. Layers are fetched
/// separately.
#[derive(Debug, Clone)]
pub struct Image {
    /// A reference to the image by digest.
    pub reference: Reference,
    /// The digest that the reference resolved to: that of the index, for a multi-platform image.
    pub digest: Digest,
    /// The digest of this platform's manifest; equals `digest` for a single-platform image.
    pub platform_digest: Digest,
    /// The bytes of this platform's manifest.
    pub manifest: Bytes,
    /// The manifest's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The labels of the image's configuration.
    pub labels: BTreeMap<String, String>,
    /// The bytes of the image's configuration.
    pub config: Bytes,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
}

impl Image {
    /// The label `name`, or else the manifest's annotation of that name.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).or_else(|| self.annotations.get(name)).map(String::as_str)
    }

    /// The size of all layers as stored in the registry, bytes.
    pub fn packed_size(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }
}

/// One layer of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layer {
    /// The digest of the layer as stored, compressed or not.
    pub digest: Digest,
    /// The size of the layer as stored, bytes.
    pub size: u64,
    /// The layer's format.
    pub kind: LayerKind,
}
