//! The checksum of a journal file.
//!
//! The checksum follows the JSON as white space, which every reader of JSON skips: an earlier
//! version of Outrigger, which refuses unknown fields, still reads the file. Each hexadecimal digit
//! of the content's SHA-256 is written as two characters of white space, each for two bits.

use outrigger_core::Digest;

/// The characters that stand for 0, 1, 2 and 3: all white space of JSON.
const SPACES: [u8; 4] = [b' ', b'\t', b'\n', b'\r'];
/// The length of a checksum in bytes.
const LENGTH: usize = 128;

/// Appends the checksum to `content`, which ends with no white space.
pub(crate) fn seal(mut content: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(&content);
    content.extend(checksum);
    content
}

/// The content of a file without its checksum; `None` if they do not match. A file without a
/// checksum is returned as it is: earlier versions wrote none. A file that was cut within its
/// checksum has its whole content, and counts as one of those.
pub(crate) fn unseal(file: &[u8]) -> Option<&[u8]> {
    let end = file.iter().rposition(|byte| !SPACES.contains(byte)).map_or(0, |last| last + 1);
    let (content, spaces) = file.split_at(end);
    let is_intact = spaces.len() != LENGTH || checksum(content).eq(spaces.iter().copied());
    is_intact.then_some(content)
}

fn checksum(content: &[u8]) -> impl Iterator<Item = u8> + use<> {
    let bytes = *Digest::of(content).as_bytes();
    let space = |bits: u8| SPACES[usize::from(bits & 3)];
    bytes.into_iter().flat_map(move |byte| [6, 4, 2, 0].map(|shift| space(byte >> shift)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_returned_and_the_file_is_still_json() {
        let sealed = seal(br#"{"last": 7}"#.to_vec());
        assert_eq!(unseal(&sealed), Some(&br#"{"last": 7}"#[..]));
        let value: serde_json::Value = serde_json::from_slice(&sealed).expect("JSON");
        assert_eq!(value["last"], 7);
    }

    #[test]
    fn a_file_of_an_earlier_version_has_no_checksum() {
        assert_eq!(unseal(b"{}"), Some(&b"{}"[..]));
        assert_eq!(unseal(b"{}\n"), Some(&b"{}"[..]));
        assert_eq!(unseal(b""), Some(&b""[..]));
    }

    #[test]
    fn other_content_of_the_same_length_is_refused() {
        let mut sealed = seal(br#"{"last": 7}"#.to_vec());
        sealed[9] = b'8';
        assert_eq!(unseal(&sealed), None);
    }
}
