//! An output that is hashed as it is written.

use std::io::{self, Write};

/// Counts the bytes that are written, and hashes them with BLAKE3: SHA-256 takes a third of the CPU of
/// a job on processors without instructions for it.
#[derive(Debug)]
pub(crate) struct Hashed<W> {
    inner: W,
    bytes: u64,
    hash: blake3::Hasher,
}

impl<W> Hashed<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, bytes: 0, hash: blake3::Hasher::new() }
    }

    /// The output, with the number of its bytes and their hash in hexadecimal digits.
    pub(crate) fn end(self) -> (W, u64, String) {
        (self.inner, self.bytes, self.hash.finalize().to_hex().to_string())
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(data)?;
        self.bytes += written as u64;
        self.hash.update(&data[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_all_bytes() {
        let mut hashed = Hashed::new(Vec::new());
        hashed.write_all(b"ab").expect("written");
        hashed.write_all(b"c").expect("written");
        let (content, bytes, hash) = hashed.end();
        assert_eq!((&content[..], bytes), (&b"abc"[..], 3));
        // As b3sum prints it.
        assert!(hash.starts_with("6437b3ac38465133ffb63b75273a8db5"), "{hash}");
    }
}
