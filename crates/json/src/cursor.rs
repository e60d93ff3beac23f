//! A reader of JSON text that stops at the first byte it does not expect.

use std::borrow::Cow;

use crate::escape::unescape;

/// Text that this reader does not take: it is no JSON, or not what is expected at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Odd;

/// The result of reading.
pub type Read<T> = Result<T, Odd>;

/// The most levels of arrays and objects.
const DEPTH: u32 = 100;

/// The rest of a text in UTF-8.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    /// The text after what was read.
    pub rest: &'a [u8],
}

/// A string, checked as far as its end.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// With its quotes.
    quoted: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    /// The content, if it stands in the text as it is.
    #[inline]
    pub fn plain(self) -> Option<&'a [u8]> {
        (!self.escaped).then(|| &self.quoted[1..self.quoted.len() - 1])
    }

    /// The content.
    ///
    /// # Errors
    /// An escape is not valid.
    pub fn read(self) -> Read<Cow<'a, [u8]>> {
        match self.plain() {
            Some(plain) => Ok(Cow::Borrowed(plain)),
            None => {
                // The content is no longer than its text.
                let mut content = Vec::with_capacity(self.quoted.len());
                self.append(&mut content)?;
                Ok(Cow::Owned(content))
            }
        }
    }

    /// Appends the content to `out`.
    ///
    /// # Errors
    /// An escape is not valid.
    #[inline]
    pub fn append(self, out: &mut Vec<u8>) -> Read<()> {
        match self.plain() {
            Some(plain) => {
                out.extend_from_slice(plain);
                Ok(())
            }
            None => self.pieces(|piece| out.extend_from_slice(piece)),
        }
    }

    /// Checks the escapes.
    fn check(self) -> Read<()> {
        if self.escaped { self.pieces(|_| {}) } else { Ok(()) }
    }

    fn pieces(self, put: impl FnMut(&[u8])) -> Read<()> {
        unescape(&self.quoted[1..self.quoted.len() - 1], put)
    }
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the begin of a text.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The next byte, which stays.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Skips white space; returns the byte after it, which stays.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<u8> {
        loop {
            let byte = self.peek()?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.rest = &self.rest[1..];
        }
    }

    /// Skips a byte that has been seen.
    #[inline]
    pub fn skip(&mut self) {
        self.rest = &self.rest[1..];
    }

    /// Reads this byte, after white space.
    ///
    /// # Errors
    /// Another byte comes next.
    #[inline]
    pub fn expect(&mut self, byte: u8) -> Read<()> {
        if self.next() != Some(byte) {
            return Err(Odd);
        }
        self.skip();
        Ok(())
    }

    /// Reads the end of the text.
    ///
    /// # Errors
    /// More than white space comes next.
    pub fn end(&mut self) -> Read<()> {
        if self.next().is_none() { Ok(()) } else { Err(Odd) }
    }

    /// Reads these bytes if they come next.
    #[inline]
    pub fn accept(&mut self, bytes: &[u8]) -> bool {
        match self.rest.strip_prefix(bytes) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Reads one of the words `true`, `false` and `null`.
    ///
    /// # Errors
    /// It does not come next.
    #[inline]
    pub fn word(&mut self, word: &str) -> Read<()> {
        if self.accept(word.as_bytes()) { Ok(()) } else { Err(Odd) }
    }

    /// Reads a string, whose quote comes next.
    ///
    /// # Errors
    /// Another byte comes next, or the string does not end or has a control character.
    #[inline]
    pub fn text(&mut self) -> Read<Text<'a>> {
        if self.peek() != Some(b'"') {
            return Err(Odd);
        }
        let (all, mut at, mut escaped) = (self.rest, 1, false);
        loop {
            at += plain(&all[at..]);
            match all.get(at) {
                Some(b'"') => break,
                Some(b'\\') if at + 1 < all.len() => {
                    escaped = true;
                    at += 2;
                }
                _ => return Err(Odd),
            }
        }
        let (quoted, rest) = all.split_at(at + 1);
        self.rest = rest;
        Ok(Text { quoted, escaped })
    }

    /// Reads an object: calls `member` with each key, before its value is read.
    ///
    /// # Errors
    /// The next value is no object, or `member` returns an error.
    #[inline]
    pub fn object<E: From<Odd>>(
        &mut self,
        mut member: impl FnMut(Text<'a>, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{')?;
        if self.next() == Some(b'}') {
            self.skip();
            return Ok(());
        }
        loop {
            self.next();
            let key = self.text()?;
            self.expect(b':')?;
            self.next();
            member(key, self)?;
            match self.next() {
                Some(b',') => self.skip(),
                Some(b'}') => {
                    self.skip();
                    return Ok(());
                }
                _ => return Err(Odd.into()),
            }
        }
    }

    /// Reads an array: calls `item` before each item is read.
    ///
    /// # Errors
    /// The next value is no array, or `item` returns an error.
    #[inline]
    pub fn array<E: From<Odd>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[')?;
        if self.next() == Some(b']') {
            self.skip();
            return Ok(());
        }
        loop {
            self.next();
            item(self)?;
            match self.next() {
                Some(b',') => self.skip(),
                Some(b']') => {
                    self.skip();
                    return Ok(());
                }
                _ => return Err(Odd.into()),
            }
        }
    }

    /// Checks and skips any value, within `depth` others.
    ///
    /// # Errors
    /// The next value is no JSON, or has too many levels.
    pub fn value(&mut self, depth: u32) -> Read<()> {
        let depth = deeper(depth)?;
        match self.peek() {
            Some(b'{') => self.object(|key, this| {
                key.check()?;
                this.value(depth)
            }),
            Some(b'[') => self.array(|this| this.value(depth)),
            Some(b'"') => self.text()?.check(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => crate::number::read(&mut self.rest).map(drop).ok_or(Odd),
        }
    }

    /// Skips a value, which another reader checks: an array or an object by its brackets and its
    /// strings alone, any other as [`value`](Self::value) does.
    ///
    /// # Errors
    /// The next value does not end, or is no JSON.
    pub fn pass(&mut self) -> Read<()> {
        if !matches!(self.peek(), Some(b'[' | b'{')) {
            return self.value(0);
        }
        let mut depth = 0_usize;
        loop {
            match self.peek().ok_or(Odd)? {
                b'"' => {
                    self.text()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.skip();
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

/// One level below `depth`.
///
/// # Errors
/// That is too deep for a reader that recurses.
pub fn deeper(depth: u32) -> Read<u32> {
    if depth < DEPTH { Ok(depth + 1) } else { Err(Odd) }
}

/// The number of bytes before the next quote, backslash or control character.
#[inline]
fn plain(text: &[u8]) -> usize {
    let (words, _) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return 8 * index + found.trailing_zeros() as usize / 8;
        }
    }
    let start = 8 * words.len();
    let tail = text[start..].iter().position(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'));
    tail.map_or(text.len(), |tail| start + tail)
}

/// A word whose lowest set bit is in the first byte of `word` that is a quote, a backslash or a
/// control character; 0 if none is.
#[inline]
fn special(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGHS: u64 = 0x80 * ONES;
    // The subtractions borrow only from bytes after one that was found.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(0x20 * ONES) & !word;
    let quote = zero(word ^ (u64::from(b'"') * ONES));
    let backslash = zero(word ^ (u64::from(b'\\') * ONES));
    (control | quote | backslash) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_where_serde_ends_them() {
        let texts = ["", "a", "1234567", "12345678", "123456789 é", "\u{7f}\u{80}"];
        for text in texts {
            for end in ["\"", "\"x\"", "\\\"\" ", "\n\"", "\u{1}\"", "\\u00e4\"", "\\", ""] {
                let json = format!("\"{text}{end}");
                let mut stream = serde_json::Deserializer::from_str(&json).into_iter::<String>();
                let expected = stream.next().and_then(Result::ok);
                let end = stream.byte_offset();
                let mut cursor = Cursor::new(json.as_bytes());
                let found = cursor.text().and_then(Text::read).ok();
                assert_eq!(found.as_deref(), expected.as_ref().map(String::as_bytes), "{json:?}");
                if expected.is_some() {
                    assert_eq!(json.len() - cursor.rest.len(), end, "{json:?}");
                }
            }
        }
    }

    #[test]
    fn values_are_passed_to_their_ends() {
        for (json, rest) in [
            (r#"[1, "]", [{"a": "\"]"}], NaN] ,"#, " ,"),
            (r#"{"a": [}}x"#, "x"),
            ("true]", "]"),
            ("1.5,", ","),
        ] {
            let mut cursor = Cursor::new(json.as_bytes());
            assert_eq!(cursor.pass(), Ok(()), "{json}");
            assert_eq!(cursor.rest, rest.as_bytes(), "{json}");
        }
        for odd in ["", "[", "[[]", "[\"]", "NaN"] {
            assert_eq!(Cursor::new(odd.as_bytes()).pass(), Err(Odd), "{odd}");
        }
    }

    #[test]
    fn values_are_skipped_whole() {
        let json = br#"{"a" : [1, -2.5e3, "x", true,false, null , {}], "b":[] } ,"#;
        let mut cursor = Cursor::new(json);
        assert_eq!(cursor.value(0), Ok(()));
        assert_eq!(cursor.rest, b" ,");
        for odd in
            ["", "[", "[1,]", "{\"a\"}", "{\"a\":1,}", "tru", "nul", "[1 2]", "\"\\x\"", "01x"]
        {
            let mut cursor = Cursor::new(odd.as_bytes());
            assert!(cursor.value(0).is_err() || !cursor.rest.is_empty(), "{odd}");
        }
        assert_eq!(Cursor::new("[".repeat(1000).as_bytes()).value(0), Err(Odd));
    }
}
