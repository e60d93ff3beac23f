//! The bytes of files.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use bytes::Bytes;

use crate::{ReadAt, Stat};

/// The bytes of the first range that a reader of bytes elsewhere reads, and those of the largest
/// one. Each range is twice as large as the one before it, so little is read where little is used.
const FIRST_RANGE: usize = 64 << 10;
const LARGEST_RANGE: usize = 4 << 20;

/// A file that is read from any position on.
pub trait Source: fmt::Debug + Send + Sync {
    /// The size and the identity of the content.
    ///
    /// # Errors
    /// The file system failed.
    fn stat(&self) -> io::Result<Stat>;

    /// The bytes from a position on.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read_from(self: Arc<Self>, position: u64) -> io::Result<Box<dyn Read + Send>>;
}

impl Source for File {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat::of(&self.metadata()?))
    }

    fn read_from(self: Arc<Self>, position: u64) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Positioned { file: self, position }))
    }
}

/// Reads a file, whose other readers have positions of their own.
#[derive(Debug)]
struct Positioned {
    file: Arc<File>,
    position: u64,
}

impl Read for Positioned {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

/// Bytes elsewhere, which are read in ranges.
#[derive(Debug)]
pub(super) struct Elsewhere(pub(super) Arc<dyn ReadAt>);

impl Source for Elsewhere {
    fn stat(&self) -> io::Result<Stat> {
        Ok(self.0.stat())
    }

    fn read_from(self: Arc<Self>, position: u64) -> io::Result<Box<dyn Read + Send>> {
        let (source, size) = (Arc::clone(&self.0), self.0.stat().size);
        let (held, next) = (Bytes::new(), FIRST_RANGE);
        Ok(Box::new(Ranges { source, size, position, held, next }))
    }
}

/// Reads bytes elsewhere in order. At most one range of them is in memory.
#[derive(Debug)]
struct Ranges {
    source: Arc<dyn ReadAt>,
    size: u64,
    /// The position of the next range, and its size.
    position: u64,
    next: usize,
    /// The bytes before that position that are still to be returned.
    held: Bytes,
}

impl Read for Ranges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.held.is_empty() && !buffer.is_empty() {
            let left = self.size.saturating_sub(self.position);
            let length = self.next.min(usize::try_from(left).unwrap_or(usize::MAX));
            if length == 0 {
                return Ok(0);
            }
            self.held = self.source.read_at(self.position, length)?;
            self.position += length as u64;
            self.next = (2 * self.next).min(LARGEST_RANGE);
        }
        let count = self.held.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.held.split_to(count));
        Ok(count)
    }
}
