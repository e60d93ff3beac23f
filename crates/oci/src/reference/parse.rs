//! Parses references. An error is the problem in words; the caller adds the text that was parsed.

use std::path::{Component, PathBuf};

use outrigger_core::Selector;
use reqwest::Url;

use super::{LAYOUT_SCHEME, Reference, Repository, Scope};

/// The longest repository path, as other OCI tools have it.
const LONGEST_PATH: usize = 255;
const GRAMMAR: &str = "host or repository has a character or form that registries do not take \
    (lower case letters, digits, and single '.', '_' or '-' between them)";

pub(super) fn reference(text: &str) -> Result<Reference, String> {
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
    check_path(path)?;
    Ok(Reference { repository: Repository::Registry { host, path: path.to_owned() }, selector })
}

pub(super) fn prefix(text: &str) -> Result<Scope, String> {
    if let Some(directory) = text.strip_prefix(LAYOUT_SCHEME) {
        return Ok(Scope::Layout(normal(directory)?));
    }
    let (host, path) = split_host(text.trim_end_matches('/'))?;
    check_path(if path.is_empty() { "any" } else { path })?;
    Ok(Scope::Registry { host, path: path.to_owned() })
}

/// Splits a trailing `:TAG` or `@DIGEST` off. A suffix that contains a slash belongs to the path.
fn split_selector(text: &str) -> Result<(&str, Option<Selector>), String> {
    if let Some((name, digest)) = text.rsplit_once('@').filter(|(_, rest)| !rest.contains('/')) {
        let digest = digest.parse().map_err(|error| format!("{error}"))?;
        return match split_selector(name)? {
            (_, Some(Selector::Digest(_))) => Err("give one digest, not two".to_owned()),
            // The tag says where the digest came from, and may have moved.
            (name, _) => Ok((name, Some(Selector::Digest(digest)))),
        };
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
    let (text, path) = name.split_once('/').unwrap_or((name, ""));
    if text.contains(['.', ':']) || text == "localhost" {
        return Ok((host(text).ok_or(GRAMMAR)?, path));
    }
    Err("it must begin with a registry's host, such as registry.example or localhost:5000 \
         (short names are not looked up on docker.io; write the host)"
        .to_owned())
}

/// Checks a path by the grammar of the distribution specification. Written by hand: compiled as a
/// regular expression, as other reference parsers do, the grammar takes 25 MB of memory.
fn check_path(path: &str) -> Result<(), String> {
    if path.len() > LONGEST_PATH {
        return Err(format!("its repository has more than {LONGEST_PATH} characters"));
    }
    if path.split('/').all(is_component) { Ok(()) } else { Err(GRAMMAR.to_owned()) }
}

/// A host name or an address, optionally with a port: in lower case, and an address of IPv6 as URLs
/// have it.
pub(super) fn host(text: &str) -> Option<String> {
    let end = if text.starts_with('[') {
        text.find(']')? + 1
    } else {
        text.find(':').unwrap_or(text.len())
    };
    let (name, port) = text.split_at(end);
    let name = if name.starts_with('[') {
        Url::parse(&format!("https://{name}")).ok()?.host_str()?.to_owned()
    } else {
        name.split('.').all(is_label).then(|| name.to_ascii_lowercase())?
    };
    match port.strip_prefix(':') {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(format!("{name}:{}", port.parse::<u16>().ok()?))
        }
        _ => port.is_empty().then_some(name),
    }
}

fn is_label(label: &str) -> bool {
    label.starts_with(alphanumeric)
        && label.ends_with(alphanumeric)
        && label.chars().all(|char| alphanumeric(char) || char == '-')
}

/// True if this is a path segment: lower-case letters and digits, separated by '.', '_', '__' or
/// any number of '-'.
fn is_component(component: &str) -> bool {
    let is_separator =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.chars().all(|char| char == '-');
    component.starts_with(lower_or_digit)
        && component.ends_with(lower_or_digit)
        && component.split(lower_or_digit).all(is_separator)
}

fn alphanumeric(char: char) -> bool {
    char.is_ascii_alphanumeric()
}

fn lower_or_digit(char: char) -> bool {
    char.is_ascii_lowercase() || char.is_ascii_digit()
}

/// Makes `directory` absolute and removes `.` and `..`, without looking at the file system.
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
