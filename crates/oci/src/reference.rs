//! References to images: `registry.example/team/churn:tag` and `oci:DIR:tag`.

mod parse;

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use outrigger_core::{Digest, Reason, Selector, Tag};
use serde::{Deserialize, Serialize};

/// The tag of a reference that has neither tag nor digest.
const DEFAULT_TAG: &str = "latest";
const LAYOUT_SCHEME: &str = "oci:";
/// How digests begin in the OCI image specification. Only the first kind can be pulled.
const DIGESTS: [&str; 3] = ["@sha256:", "@sha512:", "@blake3:"];

/// The error for a text that is not a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an image reference: {problem}")]
pub struct InvalidReference {
    text: String,
    problem: String,
}

/// A reference to an image: a repository and optionally a tag or a digest.
///
/// Two forms:
/// - `HOST/PATH[:TAG][@DIGEST]`. The host is never implied: it has a dot or a
///   port, is `localhost`, or an address of IPv6 in brackets. Docker Hub's short forms (`busybox`,
///   `team/churn`) are refused rather than guessed; write
///   `docker.io/library/busybox`.
/// - `oci:DIR[:TAG][@DIGEST]`, an OCI image layout directory. The text after the last colon is a
///   tag unless it contains a slash. A directory whose last segment contains a colon, without a
///   tag, is therefore written with a trailing slash: `oci:/models/a:b/`. A relative directory is
///   resolved against the working directory and kept as absolute.
///
/// If a reference has a tag and a digest, the digest counts and the tag is dropped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    repository: Repository,
    selector: Option<Selector>,
}

/// The place that holds an image's versions: a registry's repository or a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Repository {
    /// A repository of a registry.
    Registry {
        /// `registry.example` or `localhost:5000`, lower case.
        host: String,
        /// `team/churn`.
        path: String,
    },
    /// An OCI image layout directory: absolute, without `.` and `..`.
    Layout(PathBuf),
}

/// The error for a text that is not the host of a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a registry's host, such as registry.example, localhost:5000 or [::1]:5000, \
     without a scheme and without a path"
)]
pub struct InvalidHost(String);

/// The host of a registry, `host` or `host:port`, spelled as in references.
///
/// # Errors
/// [`InvalidHost`]: no reference and no URL could have this host.
pub fn registry_host(text: &str) -> Result<String, InvalidHost> {
    parse::host(text).ok_or_else(|| InvalidHost(without_login(text).chars().take(300).collect()))
}

/// A prefix that allowed references must have: a registry (`registry.example`), the first segments
/// of its repositories (`registry.example/team`), or a directory with all below it (`oci:/models`).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(Scope);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Scope {
    Registry { host: String, path: String },
    Layout(PathBuf),
}

impl Reference {
    /// A reference to a repository, without tag and digest.
    pub fn new(repository: Repository) -> Self {
        Self { repository, selector: None }
    }

    /// The repository that holds the image's versions.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The tag or digest, if the reference has one.
    pub fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// The tag or digest; `latest` if the reference has neither.
    pub fn selected(&self) -> Selector {
        let latest = || Selector::Tag(DEFAULT_TAG.parse().expect("a valid tag"));
        self.selector.clone().unwrap_or_else(latest)
    }

    /// The digest, if the reference has one.
    pub fn digest(&self) -> Option<Digest> {
        match self.selector {
            Some(Selector::Digest(digest)) => Some(digest),
            _ => None,
        }
    }

    /// The tag, if the reference has one.
    pub fn tag(&self) -> Option<&Tag> {
        match &self.selector {
            Some(Selector::Tag(tag)) => Some(tag),
            _ => None,
        }
    }

    /// A reference to the same repository with this tag.
    #[must_use]
    pub fn with_tag(&self, tag: Tag) -> Self {
        Self { repository: self.repository.clone(), selector: Some(Selector::Tag(tag)) }
    }

    /// A reference to the same repository with this digest.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { repository: self.repository.clone(), selector: Some(Selector::Digest(digest)) }
    }

    /// True if the repository is under `prefix`, compared by whole segments: `team` admits
    /// `team/churn` but not `team-evil`. Directories are compared as text; symbolic links are not
    /// followed.
    pub fn is_within(&self, prefix: &Prefix) -> bool {
        match (&self.repository, &prefix.0) {
            (
                Repository::Registry { host, path },
                Scope::Registry { host: allowed, path: first },
            ) => host == allowed && starts_with_segments(path, first),
            (Repository::Layout(directory), Scope::Layout(above)) => directory.starts_with(above),
            _ => false,
        }
    }
}

impl Prefix {
    /// The number of segments. The longer of two matching prefixes is the more specific one.
    pub(crate) fn segments(&self) -> usize {
        match &self.0 {
            Scope::Registry { path, .. } if path.is_empty() => 1,
            Scope::Registry { path, .. } => 2 + path.matches('/').count(),
            Scope::Layout(directory) => directory.components().count(),
        }
    }
}

/// True if a path begins with all segments of `first`.
pub(crate) fn starts_with_segments(path: &str, first: &str) -> bool {
    match path.strip_prefix(first) {
        Some(rest) => first.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

impl InvalidReference {
    fn new(text: &str, problem: impl Into<String>) -> Self {
        let text = without_login(text).chars().take(300).collect();
        Self { text, problem: problem.into() }
    }

    /// The stable reason for callers.
    pub fn reason(&self) -> Reason {
        Reason::RequestMalformed
    }
}

/// Replaces a login (`user:password@host`) in a text, so that error messages never show a password.
/// A digest at the end of the text is none.
fn without_login(text: &str) -> Cow<'_, str> {
    let digest = DIGESTS.iter().filter_map(|digest| text.find(digest)).min();
    let (name, digest) = text.split_at(digest.unwrap_or(text.len()));
    match name.rsplit_once('@') {
        Some((_, rest)) if !text.starts_with(LAYOUT_SCHEME) => format!("***@{rest}{digest}").into(),
        _ => text.into(),
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        parse::reference(text).map_err(|problem| InvalidReference::new(text, problem))
    }
}

impl FromStr for Prefix {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        parse::prefix(text).map(Self).map_err(|problem| InvalidReference::new(text, problem))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repository)?;
        if let Repository::Layout(directory) = &self.repository
            && ends_like_a_selector(directory, self.selector.as_ref())
        {
            f.write_str("/")?;
        }
        self.selector.as_ref().map_or(Ok(()), |selector| write!(f, "{selector}"))
    }
}

/// True if the end of the directory's name would be read as a part of the selector.
fn ends_like_a_selector(directory: &Path, selector: Option<&Selector>) -> bool {
    let last = directory.file_name().unwrap_or_default().to_string_lossy();
    last.contains('@') || (last.contains(':') && !matches!(selector, Some(Selector::Tag(_))))
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry { host, path } => write!(f, "{host}/{path}"),
            Self::Layout(directory) => write!(f, "{LAYOUT_SCHEME}{}", directory.display()),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Scope::Registry { host, path } if path.is_empty() => f.write_str(host),
            Scope::Registry { host, path } => write!(f, "{host}/{path}"),
            Scope::Layout(directory) => write!(f, "{LAYOUT_SCHEME}{}", directory.display()),
        }
    }
}

macro_rules! text_conversions {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}

text_conversions!(Reference, Repository, Prefix);

impl TryFrom<String> for Reference {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

impl TryFrom<String> for Prefix {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

#[cfg(test)]
mod tests;
