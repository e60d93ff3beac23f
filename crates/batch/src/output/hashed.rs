//! An output that is hashed as it is written.

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

/// Counts and hashes the bytes that are written.
#[derive(Debug)]
pub(crate) struct Hashed<W> {
    inner: W,
    bytes: u64,
    hash: Sha256,
}

impl<W> Hashed<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, bytes: 0, hash: Sha256::new() }
    }

    /// The output, with the number and the SHA-256 of its bytes in hexadecimal digits.
    pub(crate) fn end(self) -> (W, u64, String) {
        let hash = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (self.inner, self.bytes, hash)
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
        // The example of FIPS 180-4.
        assert!(hash.starts_with("ba7816bf8f01cfea414140de5dae2223"), "{hash}");
    }
}
