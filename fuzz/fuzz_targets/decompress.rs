//! The input as a compressed message: its first byte chooses the encoding.
#![no_main]

use std::{cell::Cell, io::Read as _};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use outrigger_compression::{Encoding, Decompressor};
use outrigger_core::Failure;

const LIMIT: usize = 1 << 20;
/// The largest decoder, with a window of 8 MiB.
const DECODER: usize = 9 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, compressed)) = bytes.split_first() else { return };
    let encoding = Encoding::ALL[usize::from(first % 3)];
    let Ok(message) = decompressed(encoding, compressed) else { return };
    assert!(message.len() <= LIMIT);
    // The steps give the same bytes as the library does at once.
    let mut expected = Vec::new();
    match encoding {
        Encoding::Gzip => {
            MultiGzDecoder::new(compressed).read_to_end(&mut expected).expect("it was decompressed");
        }
        Encoding::Deflate => {
            ZlibDecoder::new(compressed).read_to_end(&mut expected).expect("it was decompressed");
        }
        Encoding::Zstd => expected = zstd::decode_all(compressed).expect("it was decompressed"),
    }
    assert!(message == expected);
});

fn decompressed(encoding: Encoding, compressed: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut decompressor = Decompressor::new(encoding, Bytes::copy_from_slice(compressed), LIMIT);
    let (most, mut work, mut idle) = (Cell::new(0), 0, 0);
    let admit = |bytes| {
        most.set(bytes);
        Ok(())
    };
    while !decompressor.step(admit)? {
        idle = if decompressor.work() > work { 0 } else { idle + 1 };
        // Only the step that finds the end of a member does nothing.
        assert!(idle <= 1, "steps without work");
        assert!(most.get() <= 2 * LIMIT + DECODER);
        work = decompressor.work();
    }
    Ok(decompressor.finish().to_vec())
}
