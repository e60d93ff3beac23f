//! The policy that selects versions of a directory of numbered versions.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The versions of a directory of numbered versions that are served, as TensorFlow Serving's
/// `ServableVersionPolicy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionPolicy {
    /// The versions with the highest numbers, this many.
    Latest(u32),
    /// Every version, up to [`VersionPolicy::MOST`].
    All,
    /// The versions with these numbers.
    Specific(BTreeSet<u64>),
}

impl VersionPolicy {
    /// The largest number of versions that any policy selects.
    pub const MOST: u32 = 100;

    /// The largest number of versions that this policy selects.
    pub fn most(&self) -> u32 {
        match self {
            Self::Latest(count) => *count,
            Self::All => Self::MOST,
            Self::Specific(numbers) => u32::try_from(numbers.len()).unwrap_or(u32::MAX),
        }
    }

    /// True if the policy may select the version `number`.
    pub fn admits(&self, number: u64) -> bool {
        match self {
            Self::Latest(_) | Self::All => true,
            Self::Specific(numbers) => numbers.contains(&number),
        }
    }
}

impl Default for VersionPolicy {
    fn default() -> Self {
        Self::Latest(1)
    }
}
