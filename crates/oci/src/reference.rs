//! References to images: `registry.example/team/churn:tag` and `oci:DIR:tag`.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use outrigger_core::{Digest, Reason, Selector, Tag};
use serde::{Deserialize, Serialize};

/// The tag that a reference without tag and digest means.
const DEFAULT_TAG: &str = "latest";
const LAYOUT_SCHEME: &str = "oci:";

/// Why a text is not a reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an image reference: {problem}")]
pub struct InvalidReference {
    text: String,
    problem: String,
}

/// A reference to an image: a repository and perhaps a tag or a digest.
///
/// Two forms:
/// - `HOST/PATH[:TAG|@DIGEST]`. The host is never implied: it has a dot or a
///   port, or is `localhost`. Docker Hub's short forms (`busybox`,
///   `team/churn`) are refused rather than guessed; write
///   `docker.io/library/busybox`.
/// - `oci:DIR[:TAG|@DIGEST]`, an OCI image layout directory. What follows the
///   last colon is a tag unless it holds a slash, so a directory whose last
///   segment has a colon and that gets no tag is written with a slash behind:
///   `oci:/models/a:b/`. A relative directory is taken from the working
///   directory and kept absolute.
///
/// A tag together with a digest is refused: only one of them can be meant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    repository: Repository,
    selector: Option<Selector>,
}

/// Where an image's versions live: a registry's repository or a directory.
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

/// What references may be limited to: a registry (`registry.example`), some
/// first segments of its repositories (`registry.example/team`), or a
/// directory and all below it (`oci:/models`).
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

    /// Where the image's versions live.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The tag or digest, where one is written.
    pub fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// The tag or digest; `latest` where none is written.
    pub fn selected(&self) -> Selector {
        let latest = || Selector::Tag(DEFAULT_TAG.parse().expect("a valid tag"));
        self.selector.clone().unwrap_or_else(latest)
    }

    /// The digest, where one is written.
    pub fn digest(&self) -> Option<Digest> {
        match self.selector {
            Some(Selector::Digest(digest)) => Some(digest),
            _ => None,
        }
    }

    /// The tag, where one is written.
    pub fn tag(&self) -> Option<&Tag> {
        match &self.selector {
            Some(Selector::Tag(tag)) => Some(tag),
            _ => None,
        }
    }

    /// The same repository, by tag.
    #[must_use]
    pub fn with_tag(&self, tag: Tag) -> Self {
        Self { repository: self.repository.clone(), selector: Some(Selector::Tag(tag)) }
    }

    /// The same repository, by digest.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { repository: self.repository.clone(), selector: Some(Selector::Digest(digest)) }
    }

    /// The same repository, by tag or digest.
    #[must_use]
    pub fn with_selector(&self, selector: Selector) -> Self {
        Self { repository: self.repository.clone(), selector: Some(selector) }
    }

    /// Whether the repository lies under `prefix`, by whole segments: `team`
    /// admits `team/churn` and not `team-evil`. Directories are compared as
    /// written; links in them are not followed.
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

fn starts_with_segments(path: &str, first: &str) -> bool {
    match path.strip_prefix(first) {
        Some(rest) => first.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

impl InvalidReference {
    fn new(text: &str, problem: impl Into<String>) -> Self {
        Self { text: text.chars().take(300).collect(), problem: problem.into() }
    }

    /// The stable reason for callers.
    pub fn reason(&self) -> Reason {
        Reason::RequestMalformed
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        parse(text).map_err(|problem| InvalidReference::new(text, problem))
    }
}

impl FromStr for Prefix {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        parse_prefix(text).map(Self).map_err(|problem| InvalidReference::new(text, problem))
    }
}

fn parse(text: &str) -> Result<Reference, String> {
    match text.strip_prefix(LAYOUT_SCHEME) {
        Some(rest) => parse_layout(rest),
        None => parse_registry(text),
    }
}

fn parse_layout(text: &str) -> Result<Reference, String> {
    let (directory, selector) = split_selector(text)?;
    let repository = Repository::Layout(normal(directory)?);
    Ok(Reference { repository, selector })
}

fn parse_registry(text: &str) -> Result<Reference, String> {
    if text.contains("://") {
        return Err("it has no scheme such as https://".to_owned());
    }
    let (name, selector) = split_selector(text)?;
    let (host, path) = split_host(name)?;
    if path.is_empty() {
        return Err("a repository must follow the registry's host".to_owned());
    }
    check_grammar(&host, path)?;
    Ok(Reference { repository: Repository::Registry { host, path: path.to_owned() }, selector })
}

fn parse_prefix(text: &str) -> Result<Scope, String> {
    if let Some(directory) = text.strip_prefix(LAYOUT_SCHEME) {
        return Ok(Scope::Layout(normal(directory)?));
    }
    let (host, path) = split_host(text.trim_end_matches('/'))?;
    check_grammar(&host, if path.is_empty() { "any" } else { path })?;
    Ok(Scope::Registry { host, path: path.to_owned() })
}

/// Splits `:TAG` or `@DIGEST` off. A suffix with a slash belongs to the path.
fn split_selector(text: &str) -> Result<(&str, Option<Selector>), String> {
    if let Some((name, digest)) = text.rsplit_once('@').filter(|(_, rest)| !rest.contains('/')) {
        let digest = digest.parse().map_err(|error| format!("{error}"))?;
        if split_selector(name)?.1.is_some() {
            return Err("give a tag or a digest, not both".to_owned());
        }
        return Ok((name, Some(Selector::Digest(digest))));
    }
    match text.rsplit_once(':').filter(|(_, rest)| !rest.contains('/')) {
        Some((name, tag)) => {
            let tag = tag.parse().map_err(|error| format!("{error}"))?;
            Ok((name, Some(Selector::Tag(tag))))
        }
        None => Ok((text, None)),
    }
}

fn split_host(name: &str) -> Result<(String, &str), String> {
    let (host, path) = name.split_once('/').unwrap_or((name, ""));
    if host.contains(['.', ':']) || host == "localhost" {
        return Ok((host.to_ascii_lowercase(), path));
    }
    Err("it must begin with a registry's host, such as registry.example or localhost:5000 \
         (short names are not looked up on docker.io; write the host)"
        .to_owned())
}

/// Host and path by the grammar of the distribution specification.
fn check_grammar(host: &str, path: &str) -> Result<(), String> {
    let name = format!("{host}/{path}");
    let parsed: oci_client::Reference =
        name.parse().map_err(|error: oci_client::ParseError| match error {
            oci_client::ParseError::ReferenceInvalidFormat => "host or repository has a character \
                or form that registries do not take (lower case letters, digits, and single \
                '.', '_' or '-' between them)"
                .to_owned(),
            other => other.to_string(),
        })?;
    // The other parser knows docker.io's aliases and must not rewrite names.
    let aliased = matches!(host, "docker.io" | "index.docker.io");
    let same = parsed.registry() == host && parsed.repository() == path;
    if same || aliased { Ok(()) } else { Err("host or repository is ambiguous".to_owned()) }
}

/// `directory` absolute and without `.` and `..`, by its text alone.
fn normal(directory: &str) -> Result<PathBuf, String> {
    if directory.is_empty() {
        return Err("a directory must follow \"oci:\"".to_owned());
    }
    let absolute = std::path::absolute(directory).map_err(|error| error.to_string())?;
    let mut path = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    Ok(path)
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repository)?;
        match (&self.selector, &self.repository) {
            (Some(selector), _) => write!(f, "{selector}"),
            (None, Repository::Layout(directory)) if ends_like_a_selector(directory) => {
                f.write_str("/")
            }
            (None, _) => Ok(()),
        }
    }
}

fn ends_like_a_selector(directory: &Path) -> bool {
    directory.file_name().is_some_and(|name| name.to_string_lossy().contains([':', '@']))
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
