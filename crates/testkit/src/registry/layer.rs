//! Layers given by tests.

use bytes::Bytes;
use outrigger_core::{Digest, LayerKind};
use serde_json::{Value, json};

/// A layer's bytes and their format.
#[derive(Debug, Clone)]
pub struct LayerBlob {
    /// The bytes.
    pub bytes: Bytes,
    /// The media type in the manifest.
    pub media_type: String,
}

impl LayerBlob {
    /// A layer of this kind.
    pub fn new(kind: LayerKind, bytes: impl Into<Bytes>) -> Self {
        let suffix = match kind {
            LayerKind::Tar => "",
            LayerKind::TarGzip => "+gzip",
            LayerKind::TarZstd => "+zstd",
        };
        let media_type = format!("application/vnd.oci.image.layer.v1.tar{suffix}");
        Self { bytes: bytes.into(), media_type }
    }

    /// An uncompressed layer.
    pub fn tar(bytes: impl Into<Bytes>) -> Self {
        Self::new(LayerKind::Tar, bytes)
    }

    pub(super) fn descriptor(&self) -> Value {
        descriptor(&self.media_type, &self.bytes)
    }
}

/// The descriptor of `bytes`.
pub(super) fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    let digest = Digest::of(bytes).to_string();
    json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
}
