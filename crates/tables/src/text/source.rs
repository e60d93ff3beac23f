//! The bytes of files.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
    sync::Arc,
};

/// A file that is read from any position on.
pub trait Source: fmt::Debug + Send + Sync {
    /// The bytes from a position on.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read_from(self: Arc<Self>, position: u64) -> io::Result<Box<dyn Read + Send>>;
}

impl Source for File {
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
