//! Compressed messages: the encodings, the headers that name them, compression, and decompression
//! within bounds. Sync, no I/O.

mod compress;
mod decompress;
mod headers;
mod zstd_frame;

pub use self::{
    compress::{Level, compress, most_compressed},
    decompress::Decompressor,
    headers::{Unsupported, declared, preferred},
};

/// An encoding of messages. Over HTTP it is a content coding (RFC 9110, section 8.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// RFC 1952: one or more members.
    Gzip,
    /// RFC 8878: one or more frames.
    Zstd,
    /// RFC 1950, the format of zlib: one stream.
    Deflate,
}

impl Encoding {
    /// All encodings, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Gzip, Self::Deflate];

    /// Its name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
        }
    }

    /// The encoding of this name. Names of content codings are not case-sensitive, and `x-gzip` is
    /// another name of `gzip` (RFC 9110, section 8.4.1.3).
    pub fn named(name: &str) -> Option<Self> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let named = Self::ALL.into_iter().find(|encoding| is(encoding.name()));
        named.or_else(|| is("x-gzip").then_some(Self::Gzip))
    }
}
