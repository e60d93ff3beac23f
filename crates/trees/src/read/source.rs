//! The bytes of a file, in a buffer.

use std::io::BufRead;

use crate::{Error, budget::Budget, error::invalid};

const BUFFER: usize = 64 << 10;

/// A file that is read from its beginning to its end.
pub(crate) struct Source<'a> {
    file: &'a mut dyn BufRead,
    buffer: Vec<u8>,
    /// The bytes of the buffer that have not been consumed.
    start: usize,
    end: usize,
    /// Bytes of the file that are not in the buffer yet.
    remaining: u64,
}

impl<'a> Source<'a> {
    /// Reads `file`, which has `size` bytes.
    pub(crate) fn new(
        file: &'a mut dyn BufRead,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Self, Error> {
        let mut buffer = Vec::new();
        budget.reserve(&mut buffer, BUFFER)?;
        buffer.resize(BUFFER, 0);
        Ok(Self { file, buffer, start: 0, end: 0, remaining: size })
    }

    /// Bytes from here to the end of the file.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining + (self.end - self.start) as u64
    }

    /// At least the next `count` bytes, at most 4 KiB; fewer only at the end of the file.
    pub(crate) fn window(&mut self, count: usize) -> Result<&[u8], Error> {
        debug_assert!(count <= 4096, "a window is small");
        while self.end - self.start < count && self.remaining > 0 {
            self.fill()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Consumes `count` bytes, which were in a window.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// The next byte, which is not consumed. 0 at the end of the file.
    pub(crate) fn peek(&mut self) -> Result<u8, Error> {
        if self.start == self.end {
            self.window(1)?;
        }
        Ok(if self.start < self.end { self.buffer[self.start] } else { 0 })
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        if self.start == self.end && self.window(1)?.is_empty() {
            return Err(truncated());
        }
        self.start += 1;
        Ok(self.buffer[self.start - 1])
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let found = self.window(N)?.first_chunk().copied().ok_or_else(truncated)?;
        self.consume(N);
        Ok(found)
    }

    /// Appends the next `count` bytes to `bytes`.
    pub(crate) fn append(&mut self, count: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let mut missing = count;
        while missing > 0 {
            let window = self.window(1)?;
            if window.is_empty() {
                return Err(truncated());
            }
            let taken = window.len().min(missing);
            bytes.extend_from_slice(&window[..taken]);
            self.consume(taken);
            missing -= taken;
        }
        Ok(())
    }

    /// Passes over the next `count` bytes.
    pub(crate) fn skip(&mut self, mut count: u64) -> Result<(), Error> {
        if count > self.remaining() {
            return Err(truncated());
        }
        while count > 0 {
            let window = self.window(1)?.len() as u64;
            let taken = window.min(count);
            self.consume(taken as usize);
            count -= taken;
        }
        Ok(())
    }

    /// Reads more of the file behind the bytes that are in the buffer.
    fn fill(&mut self) -> Result<(), Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let free = &mut self.buffer[self.end..];
        let wanted = free.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let read = loop {
            match self.file.read(&mut free[..wanted]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if read == 0 {
            return Err(truncated());
        }
        self.end += read;
        self.remaining -= read as u64;
        Ok(())
    }
}

pub(crate) fn truncated() -> Error {
    invalid("it ends too early")
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;
    use crate::Limits;

    fn budget() -> Budget {
        Budget::new(&Limits::default(), 1000)
    }

    /// A reader that returns one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }

    #[test]
    fn bytes_arrive_in_any_pieces() {
        let mut file = BufReader::with_capacity(1, Slow(b"abcdefgh"));
        let mut source = Source::new(&mut file, 8, &mut budget()).expect("memory");
        assert_eq!(source.peek().expect("a byte"), b'a');
        assert_eq!(source.byte().expect("a byte"), b'a');
        assert_eq!(source.array().expect("bytes"), *b"bcd");
        let mut bytes = Vec::new();
        source.append(2, &mut bytes).expect("bytes");
        assert_eq!(bytes, b"ef");
        source.skip(1).expect("bytes");
        assert_eq!(source.remaining(), 1);
        assert_eq!(source.window(5).expect("a window"), b"h");
        assert!(source.array::<2>().is_err());
        source.consume(1);
        assert!(source.byte().is_err());
        assert_eq!(source.peek().expect("the end"), 0);
    }

    #[test]
    fn no_byte_beyond_the_size_is_read() {
        let mut file: &[u8] = b"abc";
        let mut source = Source::new(&mut file, 2, &mut budget()).expect("memory");
        assert_eq!(source.window(3).expect("a window"), b"ab");
        assert_eq!(file, b"c");
    }

    #[test]
    fn a_file_shorter_than_its_size_is_an_error() {
        let mut file: &[u8] = b"abc";
        let mut source = Source::new(&mut file, 9, &mut budget()).expect("memory");
        assert!(source.skip(4).is_err());
    }
}
