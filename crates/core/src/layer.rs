//! The archive formats of an image's layers.

use serde::{Deserialize, Serialize};

/// The format of one layer: always a tar archive, compressed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerKind {
    /// A plain tar archive.
    Tar,
    /// A tar archive compressed with gzip.
    TarGzip,
    /// A tar archive compressed with Zstandard.
    TarZstd,
}
