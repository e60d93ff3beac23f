//! The contract between the versions of models and the engines that run them.
//!
//! An engine is anything that takes [`ToEngine`] messages and answers with
//! [`FromEngine`] messages. For every version:
//!
//! - `Add` is answered by `Up` or `Failed`, as soon as the engine knows.
//! - After `Add`, `Lost` says that the engine restarted and forgot the version. It is loaded
//!   when it is added again: a version that ends the engine must not be loaded together
//!   with all others.
//! - The [`Condition`] with a restart comes before the versions that were lost by it.
//! - `Remove` is answered by `Gone`, also after `Failed`. Until then the engine may
//!   read the version's files.
//! - A version that was removed is not added again: every load attempt gets a
//!   version number of its own.
//!
//! How an engine does as a whole is its [`Condition`].

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Failure, InvalidName, Moment, Reason, ServableId, ServableName, name::text_conversions,
};

/// The name of an engine in the configuration: `[a-z0-9][a-z0-9._-]{0,62}`. It is also
/// part of a directory's name in the store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EngineId(Arc<str>);

/// A message to an engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToEngine {
    /// Load this version; its files are in place.
    Add(ServableId),
    /// Unload this version. No request uses it any more.
    Remove(ServableId),
    /// This name will soon have a version, so that the engine can prepare for it. An
    /// engine may ignore it.
    Expect(ServableName),
    /// This name is not expected to have a version any more.
    Unexpect(ServableName),
}

/// A message from an engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FromEngine {
    /// The engine serves this version.
    Up(ServableId),
    /// The engine could not load, or has unloaded, this version.
    Failed(ServableId, Failure),
    /// The engine restarted and has forgotten this version, which may be added again.
    Lost(ServableId),
    /// After [`ToEngine::Remove`]: the engine has nothing to do with it any more.
    Gone(ServableId),
}

/// The condition of an engine as a whole, apart from its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Condition {
    /// True if the engine answered the last call; `None` before the first answer or failure.
    pub reachable: Option<bool>,
    /// The time since which the engine has not answered.
    pub down_since: Option<Moment>,
    /// The last failure that concerns the engine as a whole.
    pub failure: Option<Failure>,
    /// Restarts of the engine that were detected.
    pub restarts: u64,
    /// A change of the engine's configuration has not been answered yet.
    pub reloading: bool,
}

impl EngineId {
    /// The only engine of a configuration that does not name engines.
    pub const DEFAULT: &'static str = "default";

    /// The valid name `name`.
    ///
    /// # Panics
    /// If it is not valid.
    pub fn new(name: &'static str) -> Self {
        name.parse().expect("a valid name of an engine")
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the engine of a configuration that does not name engines.
    pub fn is_default(&self) -> bool {
        &*self.0 == Self::DEFAULT
    }
}

impl Default for EngineId {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl Condition {
    /// The condition of an engine that always answers: one in this process.
    pub fn up() -> Self {
        Self { reachable: Some(true), ..Self::default() }
    }

    /// The next condition of an engine that did not answer until `now`, and did so last at `answered`.
    /// One that hangs, whose failure is DEADLINE, has been down since then.
    #[must_use]
    pub fn down(&self, failure: Failure, answered: Option<Moment>, now: Moment) -> Self {
        let since = answered.filter(|_| failure.reason == Reason::Deadline).unwrap_or(now);
        Self {
            reachable: Some(false),
            down_since: self.down_since.or(Some(since)),
            failure: Some(failure),
            restarts: self.restarts,
            reloading: false,
        }
    }

    /// Whether the engine answered the last time it was asked.
    pub fn is_reachable(&self) -> bool {
        self.reachable == Some(true)
    }
}

impl FromEngine {
    /// The version that the message is about.
    pub fn id(&self) -> &ServableId {
        match self {
            Self::Up(id) | Self::Failed(id, _) | Self::Lost(id) | Self::Gone(id) => id,
        }
    }
}

impl FromStr for EngineId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        const RULE: &str = "1 to 63 of a-z, 0-9, '.', '_' and '-', starting with a-z or 0-9";
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ok = text.len() <= 63
            && text.bytes().all(|b| plain(b) || b"._-".contains(&b))
            && text.bytes().next().is_some_and(plain);
        if ok { Ok(Self(text.into())) } else { Err(InvalidName::new("engine", text, RULE)) }
    }
}

text_conversions!(EngineId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_engines_are_safe_as_part_of_a_path() {
        for good in ["default", "tf-2.19_a", "0"] {
            assert_eq!(good.parse::<EngineId>().map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", ".", "..", "a/b", "A", "-a", "_a", "a b", &"x".repeat(64)] {
            assert!(bad.parse::<EngineId>().is_err(), "{bad:?}");
        }
    }
}
