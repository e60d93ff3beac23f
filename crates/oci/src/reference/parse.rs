//! Parses references. An error is the problem in words; the caller adds the text that was parsed.

use std::path::{Component, PathBuf};

use outrigger_core::Selector;

use super::{LAYOUT_SCHEME, Reference, Repository, Scope};

/// The longest repository path, as other OCI tools have it.
const LONGEST_PATH: usize = 255;

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
    check_grammar(&host, path)?;
    Ok(Reference { repository: Repository::Registry { host, path: path.to_owned() }, selector })
}

pub(super) fn prefix(text: &str) -> Result<Scope, String> {
    if let Some(directory) = text.strip_prefix(LAYOUT_SCHEME) {
        return Ok(Scope::Layout(normal(directory)?));
    }
    let (host, path) = split_host(text.trim_end_matches('/'))?;
    check_grammar(&host, if path.is_empty() { "any" } else { path })?;
    Ok(Scope::Registry { host, path: path.to_owned() })
}

/// Splits a trailing `:TAG` or `@DIGEST` off. A suffix that contains a slash belongs to the path.
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

/// Checks host and path by the grammar of the distribution specification. Written by hand: compiled
/// as a regular expression, as other reference parsers do, the grammar takes 25 MB of memory.
fn check_grammar(host: &str, path: &str) -> Result<(), String> {
    if path.len() > LONGEST_PATH {
        return Err(format!("its repository has more than {LONGEST_PATH} characters"));
    }
    if is_host(host) && path.split('/').all(is_component) {
        return Ok(());
    }
    Err("host or repository has a character or form that registries do not take (lower case \
         letters, digits, and single '.', '_' or '-' between them)"
        .to_owned())
}

/// True if this is a host name or IPv4 address, optionally with a port.
fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_label = |label: &str| {
        label.starts_with(alphanumeric)
            && label.ends_with(alphanumeric)
            && label.chars().all(|char| alphanumeric(char) || char == '-')
    };
    name.split('.').all(is_label) && !port.is_empty() && port.chars().all(|c| c.is_ascii_digit())
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
