//! Lines of a text file, and their fields.

use std::io::{self, BufRead};

use outrigger_trees::Budget;

use crate::{Error, Part, Skipped, read::File};

/// The longest line that is read, in bytes.
const LINE: usize = 64 << 20;

/// Bytes of a field that a message shows.
const SHOWN: usize = 40;

/// The faults of a file's entries: errors, or counted in the lenient mode.
#[derive(Debug)]
pub(crate) struct Faults {
    part: Part,
    entry: &'static str,
    lenient: bool,
    /// The number of the entry that is read, counted from 1.
    pub(crate) number: u64,
    /// Entries that were passed over.
    pub(crate) skipped: Skipped,
}

impl Faults {
    pub(crate) fn new(part: Part, entry: &'static str, lenient: bool) -> Self {
        Self { part, entry, lenient, number: 0, skipped: Skipped::default() }
    }

    /// Records a fault of the present entry. An error, unless the mode is lenient.
    pub(crate) fn found(&mut self, text: String) -> Result<(), Error> {
        if !self.lenient {
            return Err(self.error(format!(
                "{text}; \"lenient\": true in options.json skips such entries, as XGBoost Serving does"
            )));
        }
        self.skipped.count += 1;
        if self.skipped.first.is_none() {
            self.skipped.first = Some(self.error(text).to_string());
        }
        Ok(())
    }

    /// An error in the present entry.
    pub(crate) fn error(&self, text: impl Into<String>) -> Error {
        let (part, entry, number) = (self.part, self.entry, self.number);
        Error::Entry { part, entry, number, text: text.into() }
    }

    /// An error of the file.
    pub(crate) fn invalid(&self, text: impl Into<String>) -> Error {
        Error::Invalid(self.part, text.into())
    }

    pub(crate) fn io(&self, error: io::Error) -> Error {
        Error::Io(self.part, error)
    }
}

/// The lines of a file.
pub(crate) struct Lines<'a> {
    file: &'a mut dyn BufRead,
    /// Bytes of the file that have not been read.
    remaining: u64,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(file: File<'a>) -> Self {
        Self { file: file.content, remaining: file.size, line: Vec::new() }
    }

    /// The next line, without its end. None at the end of the file, before which empty lines do not
    /// count.
    pub(crate) fn next(
        &mut self,
        faults: &mut Faults,
        budget: &mut Budget,
    ) -> Result<Option<&[u8]>, Error> {
        if self.is_at_end(faults)? {
            return Ok(None);
        }
        faults.number += 1;
        self.line.clear();
        while self.remaining > 0 {
            let available = fill(self.file).map_err(|error| faults.io(error))?;
            let within = available.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
            if within == 0 {
                return Err(faults.invalid("it ends too early"));
            }
            let end = available[..within].iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(within)];
            if self.line.len() + part.len() > LINE {
                return Err(faults.error(format!("it is longer than {LINE} bytes")));
            }
            budget.reserve(&mut self.line, part.len())?;
            self.line.extend_from_slice(part);
            let consumed = end.map_or(within, |end| end + 1);
            self.file.consume(consumed);
            self.remaining -= consumed as u64;
            if end.is_some() {
                break;
            }
        }
        Ok(Some(&self.line))
    }

    /// True if nothing but white space is left, as far as it is in the buffer.
    fn is_at_end(&mut self, faults: &Faults) -> Result<bool, Error> {
        if self.remaining == 0 {
            return Ok(true);
        }
        let available = fill(self.file).map_err(|error| faults.io(error))?;
        let rest = usize::try_from(self.remaining).ok().and_then(|count| available.get(..count));
        Ok(rest.is_some_and(|rest| rest.iter().all(u8::is_ascii_whitespace)))
    }
}

/// The bytes that `file` has ready.
pub(super) fn fill(file: &mut dyn BufRead) -> io::Result<&[u8]> {
    // The second call returns what the first one has read: a loop cannot return its own borrow.
    loop {
        match file.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok([]) => return Ok(&[]),
            Ok(_) => break,
        }
    }
    file.fill_buf()
}

/// The first byte of a file, which is not consumed.
pub(crate) fn peek(file: &mut dyn BufRead, part: Part) -> Result<Option<u8>, Error> {
    let bytes = fill(file).map_err(|error| Error::Io(part, error))?;
    Ok(bytes.first().copied())
}

/// The fields of a line: runs of bytes other than spaces, tabs and carriage returns.
pub(crate) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let separators = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
    line.split(separators).filter(|field| !field.is_empty())
}

/// A field as text.
pub(crate) fn text(field: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(field).map_err(|_| format!("{} is not UTF-8", quoted(field)))
}

/// A field as an unsigned number.
pub(crate) fn unsigned(field: &[u8]) -> Result<u64, String> {
    parsed(field).ok_or_else(|| format!("{} is no id", quoted(field)))
}

/// A field as a finite number.
pub(crate) fn number(field: &[u8]) -> Result<f32, String> {
    let number = parsed::<f32>(field).filter(|number| number.is_finite());
    number.ok_or_else(|| format!("{} is no finite number", quoted(field)))
}

/// A field as a number of any type.
pub(crate) fn parsed<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// A field as messages show it.
pub(crate) fn quoted(field: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&field[..field.len().min(SHOWN)]);
    let end = if field.len() > SHOWN { "..." } else { "" };
    format!("\"{}{end}\"", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};

    use super::*;

    /// A reader that is interrupted, and returns one byte at a time.
    struct Slow<'a>(&'a [u8], bool);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            match self.1 {
                true => Err(io::ErrorKind::Interrupted.into()),
                false => self.0.read(&mut buffer[..1]),
            }
        }
    }

    fn lines(text: &[u8], size: usize) -> Result<Vec<Vec<u8>>, Error> {
        let mut file = BufReader::with_capacity(1, Slow(text, false));
        let mut lines = Lines::new(File { content: &mut file, size: size as u64 });
        let mut faults = Faults::new(Part::Fm, "line", false);
        let mut budget = Budget::of(1 << 20);
        let mut found = Vec::new();
        while let Some(line) = lines.next(&mut faults, &mut budget)? {
            found.push(line.to_vec());
            assert_eq!(faults.number, found.len() as u64);
        }
        Ok(found)
    }

    #[test]
    fn lines_arrive_in_any_pieces() {
        assert_eq!(lines(b"ab\n\nc", 5).expect("lines"), [&b"ab"[..], b"", b"c"]);
        assert_eq!(lines(b"ab\n\n", 4).expect("lines"), [&b"ab"[..]]);
        assert_eq!(lines(b"", 0).expect("no lines").len(), 0);
    }

    #[test]
    fn no_byte_beyond_the_size_is_read_and_none_may_lack() {
        assert_eq!(lines(b"ab\ncd", 4).expect("lines"), [b"ab".to_vec(), b"c".to_vec()]);
        let error = lines(b"ab\ncd", 6).expect_err("a short file").to_string();
        assert_eq!(error, "the FM file is invalid: it ends too early");
    }

    #[test]
    fn fields_are_separated_by_any_white_space() {
        let found: Vec<_> = fields(b"  a\tb:c   d\r").collect();
        assert_eq!(found, [&b"a"[..], b"b:c", b"d"]);
        assert_eq!(fields(b" \r").count(), 0);
    }

    #[test]
    fn messages_show_the_beginning_of_a_field_on_one_line() {
        assert_eq!(quoted(b"a\"\nb\xFF"), "\"a\\\"\\nb\u{FFFD}\"");
        assert_eq!(quoted(&[b'x'; 100]).len(), SHOWN + 5);
    }

    #[test]
    fn numbers_are_finite() {
        assert_eq!(number(b"-1.5e-3"), Ok(-1.5e-3));
        for field in ["inf", "nan", "1e39", "1x", "", "0x10"] {
            assert!(number(field.as_bytes()).is_err(), "{field}");
        }
        assert_eq!(unsigned(b"18446744073709551615"), Ok(u64::MAX));
        assert!(unsigned(b"18446744073709551616").is_err());
    }
}
