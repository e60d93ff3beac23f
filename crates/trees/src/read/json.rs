//! JSON documents (RFC 8259), with the numbers `NaN`, `Infinity` and `-Infinity`, which XGBoost
//! writes.

use super::{
    pull::{Document, NESTING, Number, STRING, expected},
    source::{Source, truncated},
};
use crate::{Error, budget::Budget, error::invalid};

/// Bytes of the longest number.
const NUMBER: usize = 64;

/// A JSON document.
pub(crate) struct Json<'a> {
    source: Source<'a>,
    /// Objects and arrays around the present value.
    depth: u32,
    /// True if `\u` in a string is no escape sequence. XGBoost writes and reads a backslash before
    /// a `u` as it is.
    has_plain_unicode: bool,
}

impl<'a> Json<'a> {
    pub(crate) fn new(source: Source<'a>) -> Self {
        Self { source, depth: 0, has_plain_unicode: false }
    }

    /// A document that XGBoost wrote.
    pub(crate) fn of_xgboost(source: Source<'a>) -> Self {
        Self { has_plain_unicode: true, ..Self::new(source) }
    }

    /// The next byte that is no white space. It is not consumed.
    pub(super) fn next(&mut self) -> Result<u8, Error> {
        loop {
            match self.source.peek()? {
                b' ' | b'\t' | b'\n' | b'\r' => self.source.consume(1),
                byte => return Ok(byte),
            }
        }
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), Error> {
        match self.next()? {
            found if found == byte => self.source.consume(1),
            found => return Err(expected(what, found)),
        }
        Ok(())
    }

    /// Reads what is between `open` and `close`: items, each of them read by `item`, with commas
    /// between them.
    fn items(
        &mut self,
        [open, close]: [u8; 2],
        what: &str,
        item: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.expect(open, what)?;
        self.depth += 1;
        if self.depth > NESTING {
            return Err(invalid("its values are nested too deep"));
        }
        if self.next()? == close {
            self.source.consume(1);
            self.depth -= 1;
            return Ok(());
        }
        loop {
            item(self)?;
            match self.next()? {
                b',' => self.source.consume(1),
                byte if byte == close => break,
                found => return Err(expected("a comma", found)),
            }
        }
        self.source.consume(1);
        self.depth -= 1;
        Ok(())
    }

    /// A number, or `true` as 1 and `false` as 0, which old files have for flags.
    pub(super) fn number<T: Number>(&mut self) -> Result<T, Error> {
        self.next()?;
        let window = self.source.window(NUMBER)?;
        let length =
            window.iter().position(|byte| matches!(byte, b',' | b']' | b'}' | b'\t'..=b' '));
        let text = &window[..length.unwrap_or(window.len()).min(NUMBER)];
        let (number, length) = (parse(text), text.len());
        let Some(number) = number else {
            return Err(invalid(format!("{:?} is no number here", String::from_utf8_lossy(text))));
        };
        self.source.consume(length);
        Ok(number)
    }

    /// Passes over a string, whose first quotation mark has not been consumed.
    fn skip_string(&mut self) -> Result<(), Error> {
        self.expect(b'"', "a string")?;
        loop {
            match self.source.byte()? {
                b'"' => return Ok(()),
                b'\\' => {
                    self.source.byte()?;
                }
                _ => {}
            }
        }
    }

    /// Passes over an object or array. Its inside is not checked.
    fn skip_nested(&mut self) -> Result<(), Error> {
        let mut depth = 0_u64;
        loop {
            let window = self.source.window(1)?;
            if window.is_empty() {
                return Err(truncated());
            }
            let at =
                window.iter().position(|byte| matches!(byte, b'"' | b'[' | b'{' | b']' | b'}'));
            let Some(at) = at else {
                let length = window.len();
                self.source.consume(length);
                continue;
            };
            let byte = window[at];
            self.source.consume(at);
            if byte == b'"' {
                self.skip_string()?;
                continue;
            }
            self.source.consume(1);
            depth = if matches!(byte, b'[' | b'{') { depth + 1 } else { depth.saturating_sub(1) };
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads the rest of an escape sequence.
    fn escape(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        let byte = match self.source.byte()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' if self.has_plain_unicode => {
                into.extend_from_slice(b"\\u");
                return Ok(());
            }
            b'u' => {
                let character = self.unicode()?;
                into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            byte @ (b'"' | b'\\' | b'/') => byte,
            _ => return Err(invalid("a string has an invalid escape sequence")),
        };
        into.push(byte);
        Ok(())
    }

    /// The character after `\u`, which may be a pair of surrogates.
    fn unicode(&mut self) -> Result<char, Error> {
        let first = self.four_digits()?;
        let code = match first {
            0xD800..0xDC00 if self.source.window(2)?.starts_with(b"\\u") => {
                self.source.consume(2);
                let second = self.four_digits()?.wrapping_sub(0xDC00);
                0x10000 + ((first - 0xD800) << 10) + (second & 0x3FF)
            }
            code => code,
        };
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_digits(&mut self) -> Result<u32, Error> {
        let digits = self.source.array::<4>()?;
        let text = str::from_utf8(&digits).ok();
        let code = text.and_then(|text| u32::from_str_radix(text, 16).ok());
        code.ok_or_else(|| invalid("a string has an invalid escape sequence"))
    }
}

impl Document for Json<'_> {
    fn object(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, &str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.items([b'{', b'}'], "an object", &mut |json| {
            let key = json.string()?;
            json.expect(b':', "a colon")?;
            visit(json, &key)
        })
    }

    fn array(
        &mut self,
        visit: &mut dyn FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.items([b'[', b']'], "an array", visit)
    }

    fn numbers<T: Number>(&mut self, into: &mut Vec<T>, budget: &mut Budget) -> Result<(), Error> {
        self.array(&mut |json| {
            let number = json.number()?;
            budget.push(into, number)
        })
    }

    fn string(&mut self) -> Result<String, Error> {
        self.expect(b'"', "a string")?;
        let mut bytes = Vec::new();
        loop {
            match self.source.byte()? {
                b'"' => break,
                b'\\' => self.escape(&mut bytes)?,
                byte => bytes.push(byte),
            }
            if bytes.len() > STRING {
                return Err(invalid("a string is too long"));
            }
        }
        String::from_utf8(bytes).map_err(|_| invalid("a string is not UTF-8"))
    }

    fn skip(&mut self) -> Result<(), Error> {
        match self.next()? {
            b'{' | b'[' => self.skip_nested(),
            b'"' => self.skip_string(),
            b'n' => match self.source.array()? {
                [b'n', b'u', b'l', b'l'] => Ok(()),
                _ => Err(expected("a value", b'n')),
            },
            _ => self.number::<f32>().map(|_| ()),
        }
    }
}

/// The number, or the flag, that `text` is.
fn parse<T: Number>(text: &[u8]) -> Option<T> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.len() <= 18 && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        let number = digits.iter().fold(0, |sum, digit| 10 * sum + i64::from(digit - b'0'));
        // Negative zero is a number of its own in floating point.
        if number != 0 || digits.len() == text.len() {
            return T::from_integer(if digits.len() == text.len() { number } else { -number });
        }
    }
    match text {
        b"true" => T::from_integer(1),
        b"false" => T::from_integer(0),
        _ => T::from_text(str::from_utf8(text).ok()?),
    }
}

#[cfg(test)]
mod tests;
