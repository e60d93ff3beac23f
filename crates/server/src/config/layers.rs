//! The sources of settings and their precedence.

use std::{collections::BTreeMap, fmt};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A problem in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key's path, such as `server.grpc` or `models[2].name`.
    pub key: String,
    /// A description of the problem, with the origin of the value.
    pub message: String,
}

impl Problem {
    /// A problem with the value of `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, message } = self;
        if key.is_empty() { f.write_str(message) } else { write!(f, "{key}: {message}") }
    }
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The value is in the configuration file.
    File,
    /// The value is in the environment variable of this name.
    Environment(String),
    /// The value is on the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// A value before its type is known.
#[derive(Debug, Clone)]
enum Raw {
    /// A value from the file.
    Tree(Value),
    /// A value from a variable or a flag: plain text, or YAML where plain text does not fit.
    Text(String),
}

/// All values given, by the path of their key; later layers replace earlier ones.
#[derive(Debug, Default)]
pub(super) struct Layers {
    values: BTreeMap<String, (Origin, Raw)>,
    /// All problems found so far.
    pub(super) problems: Vec<Problem>,
}

impl Layers {
    /// Adds a configuration file's text: sections of keys, and lists.
    pub(super) fn add_file(&mut self, text: &str) {
        match serde_saphyr::from_str::<Value>(text) {
            Ok(Value::Null) => {}
            Ok(Value::Object(sections)) => {
                for (name, section) in sections {
                    self.add_section(&name, section);
                }
            }
            Ok(_) => self.problem("", "the file is not a mapping of sections"),
            Err(error) => self.problem("", format!("the file is not valid YAML: {error}")),
        }
    }

    /// Adds a section or a list. One that no setting belongs to is kept as a value even if it is
    /// empty, and refused as such.
    fn add_section(&mut self, name: &str, section: Value) {
        let is_known = super::key_paths().any(|path| path.split('.').next() == Some(name));
        match section {
            Value::Null if is_known => {}
            // The keys of `engines` are names that the file chooses.
            Value::Object(keys) if name != "engines" && (is_known || !keys.is_empty()) => {
                for (key, value) in keys {
                    self.set(format!("{name}.{key}"), Origin::File, Raw::Tree(value));
                }
            }
            other => self.set(name.to_owned(), Origin::File, Raw::Tree(other)),
        }
    }

    /// Adds one value given as text.
    pub(super) fn add_text(&mut self, key: &str, origin: Origin, text: &str) {
        self.set(key.to_owned(), origin, Raw::Text(text.to_owned()));
    }

    fn set(&mut self, key: String, origin: Origin, raw: Raw) {
        self.values.insert(key, (origin, raw));
    }

    /// Takes the value of `section.name`, or of the list `name` if `section` is empty. If it does
    /// not fit the type, records a problem and returns `default`.
    pub(super) fn take<T: DeserializeOwned>(&mut self, section: &str, name: &str, default: T) -> T {
        let key = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
        let Some((origin, raw)) = self.values.remove(&key) else { return default };
        raw.parse().unwrap_or_else(|(inner, message)| {
            self.problem(&join(&key, &inner), format!("{message} ({origin})"));
            default
        })
    }

    /// Records a problem for every value that matches no setting.
    pub(super) fn refuse_the_rest(&mut self) {
        for (key, (origin, _)) in std::mem::take(&mut self.values) {
            self.problem(&key, format!("no such setting ({origin})"));
        }
    }

    /// The origin of each value given.
    pub(super) fn origins(&self) -> BTreeMap<String, Origin> {
        self.values.iter().map(|(key, (origin, _))| (key.clone(), origin.clone())).collect()
    }

    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(key, message));
    }
}

impl Raw {
    /// Parses the value as its type, or returns the path within it and the problem there.
    fn parse<T: DeserializeOwned>(&self) -> Result<T, (String, String)> {
        match self {
            Self::Tree(tree) => typed(tree.clone()),
            Self::Text(text) => match typed(Value::String(text.clone())) {
                Ok(value) => Ok(value),
                Err(as_text) => match serde_saphyr::from_str::<Value>(text) {
                    Ok(Value::String(_)) | Err(_) => Err(as_text),
                    Ok(tree) => typed(tree),
                },
            },
        }
    }
}

pub(super) fn typed<T: DeserializeOwned>(tree: Value) -> Result<T, (String, String)> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        (path, error.into_inner().to_string())
    })
}

pub(super) fn join(key: &str, inner: &str) -> String {
    match inner {
        "" => key.to_owned(),
        _ if inner.starts_with('[') => format!("{key}{inner}"),
        _ => format!("{key}.{inner}"),
    }
}

/// Parses a default as it is declared.
pub(super) fn default_value<T: DeserializeOwned>(text: &str) -> T {
    let raw = match text {
        "" => Raw::Tree(Value::Null),
        text => Raw::Text(text.to_owned()),
    };
    raw.parse().unwrap_or_else(|(_, message)| panic!("the default {text:?} is valid: {message}"))
}
/// An invalid configuration, with all of its problems.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Invalid(pub Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
