//! Lines of text with a key and a value, which may be a list of words or numbers between spaces.

use super::{
    pull::{Number, STRING},
    source::Source,
};
use crate::{Error, budget::Budget, error::invalid};

/// Bytes of the longest number.
const NUMBER: usize = 64;

/// Bytes of the longest key, and of a line without a value.
const KEY: usize = 256;

/// The beginning of a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    /// A key with a value, which has to be read or skipped.
    Key(String),
    /// The whole line.
    Word(String),
    /// The end of the file.
    End,
}

/// A text file that is read from its beginning to its end.
pub(crate) struct Lines<'a> {
    source: Source<'a>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(source: Source<'a>) -> Self {
        Self { source }
    }

    /// Reads the key of the next line that is not empty.
    pub(crate) fn next(&mut self) -> Result<Line, Error> {
        let mut text = Vec::new();
        while self.source.remaining() > 0 {
            match self.source.byte()? {
                b'=' => return Ok(Line::Key(utf8(text)?)),
                b'\n' if text.is_empty() => {}
                b'\n' => return Ok(Line::Word(utf8(text)?)),
                b'\r' => {}
                byte => text.push(byte),
            }
            if text.len() > KEY {
                return Err(invalid("a line has a key that is too long"));
            }
        }
        if text.is_empty() { Ok(Line::End) } else { Ok(Line::Word(utf8(text)?)) }
    }

    /// The rest of the line as a text.
    pub(crate) fn text(&mut self) -> Result<String, Error> {
        let mut text = Vec::new();
        while self.source.remaining() > 0 {
            match self.source.byte()? {
                b'\n' => break,
                b'\r' => {}
                byte => text.push(byte),
            }
            if text.len() > STRING {
                return Err(invalid("a line is too long"));
            }
        }
        utf8(text)
    }

    /// The rest of the line as a number.
    pub(crate) fn number<T: std::str::FromStr>(&mut self, key: &str) -> Result<T, Error> {
        let text = self.text()?;
        let number = text.trim().parse();
        number.map_err(|_| invalid(format!("{key} is {:?}", text.get(..NUMBER).unwrap_or(&text))))
    }

    /// The next word of the line. None at its end, which is passed.
    pub(crate) fn word(&mut self) -> Result<Option<String>, Error> {
        let mut word = Vec::new();
        loop {
            match if self.source.remaining() > 0 { self.source.peek()? } else { b'\n' } {
                b'\n' if word.is_empty() => {
                    self.source.consume(1);
                    return Ok(None);
                }
                b'\n' => return utf8(word).map(Some),
                b' ' | b'\r' => {
                    self.source.consume(1);
                    if !word.is_empty() {
                        return utf8(word).map(Some);
                    }
                }
                byte => {
                    self.source.consume(1);
                    word.push(byte);
                }
            }
            if word.len() > STRING {
                return Err(invalid("a word is too long"));
            }
        }
    }

    /// Appends the numbers in the rest of the line to `into`.
    pub(crate) fn numbers<T: Number>(
        &mut self,
        into: &mut Vec<T>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        loop {
            let window = self.source.window(NUMBER)?;
            let text = window.split(|byte| matches!(byte, b' ' | b'\r' | b'\n')).next();
            let text = text.unwrap_or_default();
            let text = &text[..text.len().min(NUMBER)];
            if text.is_empty() {
                let end = !matches!(window.first(), Some(b' ' | b'\r'));
                self.source.consume(1);
                if end {
                    return Ok(());
                }
                continue;
            }
            let number = str::from_utf8(text).ok().and_then(T::from_text).ok_or_else(|| {
                invalid(format!("{:?} is no number here", String::from_utf8_lossy(text)))
            })?;
            let length = text.len();
            self.source.consume(length);
            budget.push(into, number)?;
        }
    }

    /// The number of each word of the line that has integers between colons, and the largest of them.
    pub(crate) fn largest(&mut self, budget: &mut Budget) -> Result<Vec<(usize, i64)>, Error> {
        let mut found = Vec::new();
        let mut word = 0;
        let mut largest = None;
        let mut is_other = false;
        loop {
            let window = self.source.window(NUMBER)?;
            let length = window.iter().position(|byte| b" \r\n:".contains(byte));
            let text = &window[..length.unwrap_or(window.len())];
            let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            let is_empty = text.is_empty();
            let end = length.map(|at| window[at]);
            let length = text.len() + usize::from(end.is_some());
            self.source.consume(length);
            is_other |= !is_empty && number.is_none();
            largest = largest.max(number);
            if end == Some(b':') || end.is_none() && length > 0 {
                continue;
            }
            if let Some(largest) = largest.take().filter(|_| !is_other) {
                budget.push(&mut found, (word, largest))?;
            }
            word += usize::from(!is_empty);
            is_other = false;
            if matches!(end, Some(b'\n') | None) {
                return Ok(found);
            }
        }
    }

    /// Returns the rest of the first line that begins with `start`; None if there is no such line.
    pub(crate) fn behind(mut self, start: &[u8]) -> Result<Option<Source<'a>>, Error> {
        while self.source.remaining() > 0 {
            if self.source.window(start.len())?.starts_with(start) {
                self.source.consume(start.len());
                return Ok(Some(self.source));
            }
            self.skip()?;
        }
        Ok(None)
    }

    /// Passes over the rest of the line.
    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        loop {
            let window = self.source.window(1)?;
            let end = window.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(window.len(), |end| end + 1);
            self.source.consume(length);
            if end.is_some() || length == 0 {
                return Ok(());
            }
        }
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|_| invalid("a line is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn with<T>(text: &str, read: impl FnOnce(&mut Lines<'_>, &mut Budget) -> T) -> T {
        let mut budget = Budget::new(&Limits::default(), text.len() as u64);
        let mut file = text.as_bytes();
        let source = Source::new(&mut file, text.len() as u64, &mut budget).expect("memory");
        read(&mut Lines::new(source), &mut budget)
    }

    #[test]
    fn lines_have_keys_and_values() {
        with("tree\r\n\n\nversion=v3\nnames=a  b=c\nempty=\nlast=7", |lines, budget| {
            let next = |lines: &mut Lines<'_>| lines.next().expect("a line");
            let key = |key: &str| Line::Key(key.to_owned());
            assert_eq!(next(lines), Line::Word("tree".to_owned()));
            assert_eq!(next(lines), key("version"));
            assert_eq!(lines.text().expect("a text"), "v3");
            assert_eq!(next(lines), key("names"));
            let words = std::iter::from_fn(|| lines.word().expect("a word")).collect::<Vec<_>>();
            assert_eq!(words, ["a", "b=c"]);
            assert_eq!(next(lines), key("empty"));
            let mut numbers = Vec::<u32>::new();
            lines.numbers(&mut numbers, budget).expect("no numbers");
            assert!(numbers.is_empty());
            assert_eq!(next(lines), key("last"));
            assert_eq!(lines.number::<u32>("last").expect("a number"), 7);
            assert_eq!(next(lines), Line::End);
        });
    }

    #[test]
    fn numbers_are_read_to_the_end_of_the_line() {
        with("1 -2.5  1e-300 \r\nkey=9\n4", |lines, budget| {
            let mut numbers = Vec::<f64>::new();
            lines.numbers(&mut numbers, budget).expect("numbers");
            assert_eq!(numbers, [1.0, -2.5, 1e-300]);
            assert_eq!(lines.next().expect("a line"), Line::Key("key".to_owned()));
            lines.skip().expect("the rest");
            lines.numbers(&mut numbers, budget).expect("a number before the end of the file");
            assert_eq!(numbers.last(), Some(&4.0));
        });
    }

    #[test]
    fn other_texts_are_no_numbers() {
        for text in ["1 x", "1,2", "0x1", &"1".repeat(65)] {
            let read = with(text, |lines, budget| lines.numbers(&mut Vec::<u32>::new(), budget));
            assert!(read.expect_err(text).to_string().contains("is no number here"), "{text}");
        }
        let key = with(&"k".repeat(300), |lines, _| lines.next());
        assert!(key.is_err());
    }
}
