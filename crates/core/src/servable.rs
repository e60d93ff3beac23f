//! The names of models in the engine.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Digest, ModelName};

/// A model's name in a form that is safe for the engine and for a directory; the engine's name of
/// the servable. Injective: different models get different names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServableName(Arc<str>);

/// A servable's version: a number that only grows and is never used twice,
/// because an engine never reloads a (name, version) it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub i64);

/// One loaded model in the engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServableId {
    /// The servable's name.
    pub name: ServableName,
    /// Its version.
    pub version: Version,
}

impl ServableName {
    /// The engine's name of `model`: its segments joined by `--`, cut to 80 bytes, and the first 10
    /// hexadecimal digits of the name's SHA-256. The digits keep different models apart.
    pub fn of(model: &ModelName) -> Self {
        let readable = model.as_str().replace('/', "--");
        let readable: String = readable.chars().take(80).collect();
        let hash = &Digest::of(model.as_str().as_bytes()).hex()[..10];
        Self(format!("{readable}-{hash}").into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for ServableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_readable_and_apart() {
        let name = |text: &str| ServableName::of(&text.parse().expect("a valid name"));
        assert!(name("offers/spring").as_str().starts_with("offers--spring-"));
        assert_ne!(name("offers/spring"), name("offers--spring"));
        let long = "a".repeat(200);
        assert!(name(&long).as_str().len() <= 91);
        assert!(!name("..-x/y").as_str().contains('/'));
    }
}
