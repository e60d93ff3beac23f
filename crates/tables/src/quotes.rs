//! The quotes of CSV, in the bytes of a file: a quote that is not closed would take the rows after it
//! into its cell.

use std::{fmt, io};

/// Follows the quotes of a file, as the parser does: a quote at the start of a cell opens a text that
/// may have line breaks, and two quotes in it stand for one.
#[derive(Debug)]
pub(crate) struct Quotes {
    state: State,
    /// The line of the next byte, from 1, and that of the last quote that has opened a text.
    line: u64,
    opened: u64,
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the start of a cell.
    Start,
    /// In a cell without quotes, or after its text in quotes.
    Bare,
    /// In a text in quotes.
    Text,
    /// After a quote in it, which closes it unless another one follows.
    Quote,
}

/// A quote that is not closed where its cell ends.
#[derive(Debug, Clone, Copy)]
struct Fault {
    opened: u64,
    /// The line in which another quote comes, with other text after it.
    ends: Option<u64>,
}

impl Default for Quotes {
    /// Those of a file from the start of a row on.
    fn default() -> Self {
        Self { state: State::Start, line: 1, opened: 0, fault: None }
    }
}

impl Quotes {
    /// Follows further bytes. Returns the number of those that are valid: the rest is not, and neither
    /// is what follows.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if self.state == State::Quote {
                if !self.after_quote(rest[0]) {
                    return at;
                }
                at += 1;
                continue;
            }
            let Some(quote) = rest.iter().position(|byte| *byte == b'"') else {
                self.pass(rest);
                break;
            };
            self.pass(&rest[..quote]);
            self.quote();
            at += quote + 1;
        }
        bytes.len()
    }

    /// The error after the bytes that are valid, if there is one. `is_end`: there are no more.
    ///
    /// # Errors
    /// A quote is not closed.
    pub(crate) fn check(&mut self, is_end: bool) -> io::Result<()> {
        if is_end && self.state == State::Text {
            self.fault.get_or_insert(Fault { opened: self.opened, ends: None });
        }
        match self.fault {
            Some(fault) => Err(io::Error::new(io::ErrorKind::InvalidData, fault.to_string())),
            None => Ok(()),
        }
    }

    /// Passes bytes without a quote.
    fn pass(&mut self, bytes: &[u8]) {
        self.line += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if let (State::Start | State::Bare, Some(last)) = (self.state, bytes.last()) {
            self.state = if is_end(*last) { State::Start } else { State::Bare };
        }
    }

    fn quote(&mut self) {
        match self.state {
            State::Start => (self.state, self.opened) = (State::Text, self.line),
            State::Text => self.state = State::Quote,
            State::Bare | State::Quote => {}
        }
    }

    /// Takes the byte after a quote in a text. Returns false if it shows that the quote before was not
    /// closed: the text has line breaks, and does not end where a cell does.
    fn after_quote(&mut self, byte: u8) -> bool {
        self.state = match byte {
            b'"' => State::Text,
            byte if is_end(byte) => State::Start,
            _ if self.line == self.opened => State::Bare,
            _ => {
                self.fault = Some(Fault { opened: self.opened, ends: Some(self.line) });
                return false;
            }
        };
        self.line += u64::from(byte == b'\n');
        true
    }
}

/// True if a cell ends before this byte.
fn is_end(byte: u8) -> bool {
    matches!(byte, b',' | b'\r' | b'\n')
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opened, ends } = self;
        write!(f, "the quote that opens a cell in line {opened} is not closed: ")?;
        match ends {
            None => f.write_str("its text goes on to the end of the file"),
            Some(line) => {
                write!(
                    f,
                    "its text goes on to line {line}, where no cell ends after the next quote"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fault of a text that is read in parts of this size.
    fn fault(text: &[u8], size: usize) -> Option<String> {
        let mut quotes = Quotes::default();
        for part in text.chunks(size) {
            if quotes.follow(part) < part.len() {
                break;
            }
        }
        quotes.check(true).err().map(|error| error.to_string())
    }

    #[test]
    fn a_quote_that_is_not_closed_is_found_however_the_file_is_read() {
        for (text, line, ends) in [
            (&b"id,t\n1,\"a\n2,b\n3,c\n"[..], 2, "end of the file"),
            (b"id,t\n1,a\n2,\"b\n3,\"c\"\n", 3, "to line 4"),
            (b"id,t\n1,a\n2,\"b\n3,\"\"\n4,\"d\"\n", 3, "to line 5"),
            (b"id,t\n\"1,a\n", 2, "end of the file"),
            (b"id,t\n1,\"a\"\"\n2,b\n", 2, "end of the file"),
        ] {
            for size in [1, 2, 3, 7, 100] {
                let found = fault(text, size).expect("a fault");
                let is_clear = found.contains(&format!("in line {line} ")) && found.contains(ends);
                assert!(is_clear, "{found} at {size}");
            }
        }
    }

    #[test]
    fn quotes_that_are_closed_are_no_fault() {
        for text in [
            &b"id,t\n1,\"a,\n\"\"b\"\"\"\r\n\"2\",\"\"\n3,\"c\""[..],
            b"1,a\"b\n2,\"a\"b\n3,5\" by 7\"\n",
            b"\"\"\"\",\"\n\"\n",
            b"",
        ] {
            for size in [1, 2, 5, 100] {
                assert_eq!(fault(text, size), None, "{text:?} at {size}");
            }
        }
    }
}
