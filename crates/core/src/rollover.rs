//! The ways from one version of a model to the next.

use serde::{Deserialize, Serialize};

/// The way from one version of a model to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollover {
    /// The new version is loaded beside the old one, which leaves the engine afterwards.
    #[default]
    Overlap,
    /// The old version leaves the engine before the new one is loaded: the engine has one version of
    /// the model at a time.
    Replace,
}
