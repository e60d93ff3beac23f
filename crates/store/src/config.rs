//! What the store is told at its start.

use std::path::PathBuf;

use bytesize::ByteSize;

/// Where the store is and how large it may become.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store's directory; made when missing.
    pub path: PathBuf,
    /// How much blobs, partial downloads and trees may take together.
    pub max_size: ByteSize,
    /// Bounds of what one image may unpack to.
    pub limits: UnpackLimits,
    /// Where the engine sees the store, if elsewhere: an absolute path.
    pub engine_path: Option<PathBuf>,
}

/// Bounds that keep a hostile image from filling the disk or the memory. The
/// bytes are counted over everything the layers decompress to, so they bound a
/// decompression bomb whatever its ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Decompressed bytes of all layers of one image together.
    pub max_bytes: ByteSize,
    /// Entries of all layers of one image together.
    pub max_entries: u64,
}

impl Config {
    /// A store at `path` of at most 20 GiB that the engine sees at the same path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            max_size: ByteSize::gib(20),
            limits: UnpackLimits::default(),
            engine_path: None,
        }
    }
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self { max_bytes: ByteSize::gib(20), max_entries: 100_000 }
    }
}
