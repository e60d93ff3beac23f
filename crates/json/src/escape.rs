//! Escapes in strings (RFC 8259, section 7).

use crate::cursor::{Odd, Read};

/// Passes the content of a string, whose text is `text`, to `put` piece by piece.
///
/// # Errors
/// An escape is not valid.
pub(crate) fn unescape(mut text: &[u8], mut put: impl FnMut(&[u8])) -> Read<()> {
    while let Some(at) = text.iter().position(|byte| *byte == b'\\') {
        put(&text[..at]);
        let (character, rest) = escape(&text[at + 1..])?;
        put(character.encode_utf8(&mut [0; 4]).as_bytes());
        text = rest;
    }
    put(text);
    Ok(())
}

/// The character that is escaped, and the text after it; the backslash has been read.
fn escape(text: &[u8]) -> Read<(char, &[u8])> {
    let (kind, rest) = text.split_first().ok_or(Odd)?;
    let character = match kind {
        b'"' | b'\\' | b'/' => char::from(*kind),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(rest),
        _ => return Err(Odd),
    };
    Ok((character, rest))
}

/// The character of four hexadecimal digits, or of two surrogates.
fn unicode(text: &[u8]) -> Read<(char, &[u8])> {
    let (high, rest) = digits(text)?;
    if let Some(character) = char::from_u32(high) {
        return Ok((character, rest));
    }
    let (low, rest) = digits(rest.strip_prefix(b"\\u").ok_or(Odd)?)?;
    if !(0xd800..0xdc00).contains(&high) || !(0xdc00..0xe000).contains(&low) {
        return Err(Odd);
    }
    let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    Ok((char::from_u32(code).ok_or(Odd)?, rest))
}

fn digits(text: &[u8]) -> Read<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>().ok_or(Odd)?;
    let digit = |value: u32, byte: &u8| Some(value << 4 | char::from(*byte).to_digit(16)?);
    Ok((digits.iter().try_fold(0, digit).ok_or(Odd)?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    fn found(text: &str) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        let read = unescape(text.as_bytes(), |piece| content.extend_from_slice(piece));
        read.ok().map(|()| content)
    }

    /// The content as serde_json reads it.
    fn expected(text: &str) -> Option<Vec<u8>> {
        serde_json::from_str::<String>(&format!("\"{text}\"")).ok().map(String::into_bytes)
    }

    #[test]
    fn escapes_are_read_as_by_serde() {
        for text in [
            "",
            "é",
            r#"\"\\\/\b\f\n\r\t"#,
            r"\u00e9\u00E9",
            r"\ud83d\ude00",
            r"\ud83d",
            r"\ud83dx",
            r"\ud83d\n",
            r"\ud83d\ud83d",
            r"\ude00",
            r"\ude00\ud83d",
            r"\u12",
            r"\u12g4",
            r"\u+123",
            r"\x",
            r"\",
            r"\0",
        ] {
            assert_eq!(found(text), expected(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_by_serde(
            pieces in vec(select(&["\\", "\\\\", "\\u", "d83d", "de00", "00", "e9", "n", "x", "é", "/"][..]), 0..12)
        ) {
            let text = pieces.concat();
            prop_assert_eq!(found(&text), expected(&text), "{}", text);
        }
    }
}
