//! Records of text: the lines and the bytes of a file, within limits.

use std::io::{self, BufRead as _, BufReader, Read};

use crate::quotes::Quotes;

/// The mark at the beginning of some files in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of CSV: limits those of a row, and follows the quotes.
#[derive(Debug)]
pub(crate) struct Counted<R> {
    input: R,
    /// The bytes that were read.
    read: u64,
    /// The most bytes of a row.
    row: usize,
    /// The number of bytes that may still be read.
    allowed: usize,
    /// The quotes so far. One that is not closed is an error after the rows before it.
    quotes: Quotes,
}

impl<R> Counted<R> {
    pub(crate) fn new(input: R, row: usize) -> Self {
        Self { input, read: 0, row, allowed: usize::MAX, quotes: Quotes::default() }
    }

    /// Allows one more row to be read.
    pub(crate) fn allow_row(&mut self) {
        self.allowed = self.row;
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.quotes.check(false)?;
        if self.allowed == 0 {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, too_long(self.row)));
        }
        let room = buffer.len().min(self.allowed);
        let read = self.input.read(&mut buffer[..room])?;
        let bytes = &buffer[..read];
        let has_mark = self.read == 0 && bytes.starts_with(BYTE_ORDER_MARK);
        let mark = if has_mark { BYTE_ORDER_MARK.len() } else { 0 };
        self.allowed -= read;
        self.read += read as u64;
        let valid = mark + self.quotes.follow(&bytes[mark..]);
        // The rows before a fault are read first.
        if valid == 0 {
            self.quotes.check(room > 0)?;
        }
        Ok(valid)
    }
}

/// The message about a row that is longer than `row` bytes.
pub(crate) fn too_long(row: usize) -> String {
    format!("a row has more than {row} bytes")
}

/// The lines of a file, without those that are blank.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    most: usize,
    position: u64,
}

/// The result of reading a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    End,
    /// The line was skipped, and the next one can be read.
    TooLong,
    Read,
}

impl<R: Read> Lines<R> {
    /// Reads lines of at most `most` bytes from `input`, which begins at this position of its file.
    pub(crate) fn new(input: BufReader<R>, position: u64, most: usize) -> Self {
        Self { input, line: Vec::new(), most, position }
    }

    /// The position in the file after the last line.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The last line, without its end.
    pub(crate) fn line(&self) -> &[u8] {
        self.line.trim_ascii_end()
    }

    /// Reads the next line that is not blank.
    ///
    /// # Errors
    /// The file cannot be read any further.
    pub(crate) fn read(&mut self) -> io::Result<Line> {
        loop {
            let start = self.position;
            let line = self.read_any()?;
            if start == 0 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            if line != Line::Read || !self.line().is_empty() {
                return Ok(line);
            }
        }
    }

    fn read_any(&mut self) -> io::Result<Line> {
        self.line.clear();
        let mut input = self.input.by_ref().take(self.most as u64 + 1);
        let read = input.read_until(b'\n', &mut self.line)?;
        self.position += read as u64;
        if read == 0 {
            return Ok(Line::End);
        }
        if self.line.ends_with(b"\n") || self.line.len() <= self.most {
            return Ok(Line::Read);
        }
        self.line = Vec::new();
        self.position += self.input.skip_until(b'\n')? as u64;
        Ok(Line::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_positions() {
        let text = b"\xef\xbb\xbfa\n\n  \r\nbb\r\n123456789\nlast".as_slice();
        let mut lines = Lines::new(BufReader::new(text), 0, 8);
        let mut found = Vec::new();
        loop {
            let line = lines.read().expect("readable");
            if line == Line::End {
                break;
            }
            let text = String::from_utf8_lossy(lines.line()).into_owned();
            found.push((line, text, lines.position()));
        }
        let expected = [
            (Line::Read, "a", 5),
            (Line::Read, "bb", 14),
            (Line::TooLong, "", 24),
            (Line::Read, "last", 28),
        ];
        assert_eq!(found, expected.map(|(line, text, at)| (line, text.to_owned(), at)));
    }
}
