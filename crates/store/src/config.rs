//! The store's configuration.

use std::path::PathBuf;

use bytesize::ByteSize;
use outrigger_core::Layouts;

/// The store's location and limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store's directory, created if missing.
    pub path: PathBuf,
    /// The most that blobs, partial downloads and trees may take together.
    pub max_size: ByteSize,
    /// Limits for unpacking one image.
    pub limits: UnpackLimits,
    /// Where images hold their model, for each framework that is known.
    pub layouts: Layouts,
}

/// Limits that keep a hostile image from filling disk or memory. Bytes are counted over the
/// decompressed content of all layers, so they limit a decompression bomb of any ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Decompressed bytes of all layers of one image together.
    pub max_bytes: ByteSize,
    /// Entries of all layers of one image together.
    pub max_entries: u64,
}

impl Config {
    /// A store at `path` of at most 20 GiB.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            max_size: ByteSize::gib(20),
            limits: UnpackLimits::default(),
            layouts: Layouts::default(),
        }
    }
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self { max_bytes: ByteSize::gib(20), max_entries: 100_000 }
    }
}
