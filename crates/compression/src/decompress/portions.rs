//! Compressed bytes in portions.

use std::io::{self, BufRead, Read};

use bytes::{Buf as _, Bytes};

/// Compressed bytes of which a decoder gets a portion at a time. At the end of a portion that is
/// not the last, a read fails with `WouldBlock`, and goes on in the next portion. So a decoder that
/// finds nothing to write does not read all bytes at once.
pub(super) struct Portions {
    rest: Bytes,
    size: usize,
    /// The bytes that are left of the portion.
    left: usize,
}

impl Portions {
    /// `bytes` in portions of `size`; the first has begun.
    pub(super) fn of(bytes: Bytes, size: usize) -> Self {
        Self { rest: bytes, size, left: size }
    }

    pub(super) fn begin_portion(&mut self) {
        self.left = self.size;
    }

    /// The number of bytes that are left.
    pub(super) fn rest(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn into_rest(self) -> Bytes {
        self.rest
    }

    /// The last four bytes, little endian.
    pub(super) fn last(&self) -> Option<u32> {
        self.rest.last_chunk().map(|last| u32::from_le_bytes(*last))
    }
}

impl Read for Portions {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let portion = self.fill_buf()?;
        let count = portion.len().min(buffer.len());
        buffer[..count].copy_from_slice(&portion[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Portions {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.left.min(self.rest.len()) {
            0 if !self.rest.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(&self.rest[..count]),
        }
    }

    fn consume(&mut self, count: usize) {
        self.rest.advance(count);
        self.left -= count;
    }
}
