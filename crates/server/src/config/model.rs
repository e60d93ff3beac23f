//! The models of the configuration.

use std::{collections::BTreeMap, path::PathBuf};

use outrigger_core::{Digest, EngineId, ModelName, Rollover, Tag, VersionPolicy};
use serde::{Deserialize, Serialize};

/// A model that is configured by name, before any request for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that requests use.
    pub name: ModelName,
    /// The model's image without tag or digest; the default is `images.repository`, `/` and the
    /// name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The directory of numbered versions that the model comes from instead of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The versions of `directory` that are served; the default is the one with the highest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<VersionPolicy>,
    /// Further tags of versions of `directory`, by their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Tag, u64>,
    /// Loads the model at the start, before the server is ready, and keeps it loaded.
    #[serde(default)]
    pub preload: bool,
    /// The tag for requests that name no version; the default is `images.default_tag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Pins requests that name no version to this digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The engine that runs the model; the default is the only engine that runs models of its
    /// framework.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineId>,
    /// The way from one version to the next: beside each other, or one after the other.
    #[serde(default)]
    pub rollover: Rollover,
    /// The tensors that the model has for clients of the Open Inference Protocol.
    #[serde(default)]
    pub view: View,
}

/// The tensors that a model has for clients of the Open Inference Protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// Those of its signature.
    #[default]
    Tensors,
    /// An input for each feature; each row is a user with a treatment.
    Features,
}
