//! The record in the journal.

use std::collections::BTreeMap;

use outrigger_core::{Digest, EngineId, ModelKey, ModelName, ServableId, Tag};
use serde::{Deserialize, Serialize};

/// The state of lifecycle that must survive a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The digest that each tag last resolved to: the last known good.
    pub tags: BTreeMap<ModelName, BTreeMap<Tag, Digest>>,
    /// The versions that should be loaded in the engine.
    pub desired: Vec<Desired>,
    /// The rejected canary of each tag: the digest that the tag named when it was rejected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<ModelName, BTreeMap<Tag, Digest>>,
    /// Promotions that are in force although the registry's tag still names another digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub promoted: BTreeMap<ModelName, BTreeMap<Tag, Promoted>>,
}

/// A digest that serves a tag instead of the one that the registry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promoted {
    /// The digest that the registry's tag names. The promotion ends when the tag names another one.
    pub named: Digest,
    /// The digest that serves the tag.
    pub promoted: Digest,
}

/// A model that should be loaded in the engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// The model.
    pub key: ModelKey,
    /// Its servable in the engine.
    pub servable: ServableId,
    /// The engine. Left out for the default one, as older versions know no other.
    #[serde(default, skip_serializing_if = "EngineId::is_default")]
    pub engine: EngineId,
}
