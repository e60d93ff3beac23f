//! Names of models, tags and digests, valid by construction.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// The reason why a string is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: {rule}")]
pub struct InvalidName {
    what: &'static str,
    value: String,
    rule: &'static str,
}

impl InvalidName {
    pub(crate) fn new(what: &'static str, value: &str, rule: &'static str) -> Self {
        let value = value.chars().take(160).collect();
        Self { what, value, rule }
    }
}

/// A model's name: `[a-z0-9._-]+(/[a-z0-9._-]+)*`, no segment `.` or `..`, at
/// most 200 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelName(Arc<str>);

/// A floating tag of an image: `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag(Arc<str>);

/// A content digest, `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// One version of one model, identified by a [`ModelName`] and a [`Digest`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelKey {
    /// The model's name.
    pub name: ModelName,
    /// The digest of the version.
    pub digest: Digest,
}

/// A caller's choice of a version of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// By a floating tag.
    Tag(Tag),
    /// By digest: always exactly that version.
    Digest(Digest),
}

impl ModelName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ModelName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        const RULE: &str =
            "segments of a-z, 0-9, '.', '_' and '-' joined by '/', 200 bytes at most";
        let ok = text.len() <= 200 && text.split('/').all(valid_segment);
        if ok { Ok(Self(text.into())) } else { Err(InvalidName::new("model name", text, RULE)) }
    }
}

fn valid_segment(segment: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(allowed)
}

impl Tag {
    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The least tag in the order of tags.
    pub(crate) fn least() -> Self {
        Self("0".into())
    }

    /// The tags that name this tag's canary, by falling precedence. Empty for a tag that is itself
    /// spelled as a canary tag, or is too long to have one.
    pub fn canaries(&self, is_default: bool) -> impl Iterator<Item = Self> + use<> {
        let own = format!("{self}_canary").parse().ok();
        let plain = is_default.then(|| Self("canary".into()));
        own.into_iter().chain(plain).filter(|_| !self.is_canary()).collect::<Vec<_>>().into_iter()
    }

    /// Whether this tag names a canary by its spelling.
    pub fn is_canary(&self) -> bool {
        self.0.ends_with("_canary") || &*self.0 == "canary"
    }
}

impl FromStr for Tag {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        const RULE: &str =
            "1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-', not starting with '.' or '-'";
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let ok = (1..=128).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with(['.', '-']);
        if ok { Ok(Self(text.into())) } else { Err(InvalidName::new("tag", text, RULE)) }
    }
}

impl Digest {
    /// The least digest in the order of digests.
    pub const LEAST: Self = Self([0; 32]);

    /// A digest from the 32 bytes of a SHA-256.
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Computes the digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(content).into())
    }

    /// The 32 bytes of the SHA-256.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hexadecimal digits, without the algorithm.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string");
            text
        })
    }

    /// The first 12 hexadecimal digits, for people.
    pub fn short(&self) -> String {
        self.hex()[..12].to_owned()
    }
}

impl FromStr for Digest {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        const RULE: &str = "\"sha256:\" and 64 lower-case hexadecimal digits";
        let invalid = || InvalidName::new("digest", text, RULE);
        let hex = text.strip_prefix("sha256:").ok_or_else(invalid)?.as_bytes();
        if hex.len() != 64 {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let (high, low) = (hex_value(pair[0]), hex_value(pair[1]));
            *byte = high.zip(low).map(|(high, low)| high << 4 | low).ok_or_else(invalid)?;
        }
        Ok(Self(bytes))
    }
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

macro_rules! text_conversions {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }
    )*};
}

pub(crate) use text_conversions;
text_conversions!(ModelName, Tag);

impl fmt::Display for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.digest)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, ":{tag}"),
            Self::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tag_comes_before_the_least() {
        let characters = (0..=0x7f_u8).map(|byte| char::from(byte).to_string());
        let tags: Vec<Tag> = characters.filter_map(|text| text.parse().ok()).collect();
        assert_eq!(tags.iter().min(), Some(&Tag::least()));
    }

    #[test]
    fn model_names_are_lower_case_segments() {
        for good in ["churn", "offers/spring-2026", "a.b_c/d", "..."] {
            assert_eq!(good.parse::<ModelName>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "/", "a/", "/a", "a//b", "A", "a b", "..", "a/../b", "a/.", "ä", "a:1"] {
            assert!(bad.parse::<ModelName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn digests_round_trip_and_refuse_other_spellings() {
        let text = format!("sha256:{}", "0a".repeat(32));
        let digest: Digest = text.parse().expect("valid");
        assert_eq!(digest.to_string(), text);
        for bad in
            [text.to_uppercase(), text[1..].to_owned(), text[..70].to_owned(), "sha512:".into()]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad:?}");
        }
        // RFC 6234's value for the empty message.
        assert!(Digest::of(b"").hex().starts_with("e3b0c44298fc1c14"));
    }

    #[test]
    fn tags_follow_the_distribution_specification() {
        for good in ["latest", "latest_canary", "v1.2-rc", "_x"] {
            assert!(good.parse::<Tag>().is_ok(), "{good:?}");
        }
        for bad in ["", ".x", "-x", "a/b", "a:b", &"x".repeat(129)] {
            assert!(bad.parse::<Tag>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_tag_has_canaries_unless_it_is_one() {
        let canaries = |text: &str, is_default| {
            let tag: Tag = text.parse().expect("a valid tag");
            tag.canaries(is_default).map(|tag| tag.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(canaries("live", true), ["live_canary", "canary"]);
        assert_eq!(canaries("v1", false), ["v1_canary"]);
        assert!(canaries("v1_canary", true).is_empty() && canaries("canary", true).is_empty());
        assert!(canaries(&"x".repeat(125), false).is_empty());
    }

    #[test]
    fn a_refused_name_is_quoted_and_cut() {
        let message = "X".repeat(9000).parse::<ModelName>().unwrap_err().to_string();
        assert!(message.len() < 400, "{message}");
    }
}
