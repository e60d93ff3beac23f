//! Compression of whole messages.

use std::io::{self, Write as _};

use crate::Encoding;

/// The effort of compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The least, for answers: their caller waits.
    Fast,
    /// The level of most clients by default: level 6 of gzip and deflate, level 3 of zstd.
    Usual,
}

impl Level {
    fn of_zlib(self) -> flate2::Compression {
        match self {
            // zlib-rs has one fixed code at level 1, which makes scores longer.
            Self::Fast => flate2::Compression::new(2),
            Self::Usual => flate2::Compression::default(),
        }
    }
}

/// Appends `message`, compressed, to `compressed`.
///
/// # Errors
/// The library has no memory.
pub fn compress(
    encoding: Encoding,
    level: Level,
    message: &[u8],
    compressed: &mut Vec<u8>,
) -> io::Result<()> {
    match encoding {
        Encoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(compressed, level.of_zlib());
            encoder.write_all(message)?;
            encoder.finish()?;
        }
        Encoding::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(compressed, level.of_zlib());
            encoder.write_all(message)?;
            encoder.finish()?;
        }
        Encoding::Zstd => {
            let level = match level {
                Level::Fast => 1,
                Level::Usual => zstd::DEFAULT_COMPRESSION_LEVEL,
            };
            let mut encoder = zstd::stream::write::Encoder::new(compressed, level)?;
            // The frame then has the message's length, and a short message takes a small window.
            encoder.set_pledged_src_size(Some(message.len() as u64))?;
            encoder.write_all(message)?;
            encoder.finish()?;
        }
    }
    Ok(())
}

/// An upper limit on the compressed size of a message of `length` bytes: data that cannot be
/// compressed are stored in blocks, each with a header.
pub fn most_compressed(length: usize) -> usize {
    length + length / 128 + 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_cannot_be_compressed_stay_within_the_limit() {
        // A linear congruential generator (Knuth's MMIX).
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        for length in [0, 1, 1000, 70_000, 3 << 20] {
            let message: Vec<u8> = (0..length).map(|_| random()).collect();
            for encoding in Encoding::ALL {
                for level in [Level::Fast, Level::Usual] {
                    let mut compressed = Vec::new();
                    compress(encoding, level, &message, &mut compressed).unwrap();
                    let most = most_compressed(length);
                    assert!(
                        compressed.len() <= most,
                        "{} > {most}, {encoding:?}",
                        compressed.len()
                    );
                }
            }
        }
    }
}
