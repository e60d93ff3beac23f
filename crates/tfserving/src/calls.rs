//! The calls that the control plane makes to TensorFlow Serving.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use http::HeaderMap;
use outrigger_core::{ServableName, Tensor, Version};
use tokio::time::Instant;

use crate::{LoadError, Target, machine::EngineState};

/// One run of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What to run.
    pub target: Arc<Target>,
    /// The inputs, named as in the signature.
    pub inputs: Vec<Tensor>,
    /// Names of the outputs wanted; empty: all.
    pub outputs: Vec<Arc<str>>,
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// What goes along in the request's headers.
    pub metadata: HeaderMap,
}

/// What the engine says of one version of a servable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionStatus {
    /// The version.
    pub version: Version,
    /// Where it is in its life.
    pub state: EngineState,
    /// Why it failed, as far as the engine says. A load that failed shows as
    /// [`EngineState::End`] with an error; one that is being retried shows none.
    pub error: Option<LoadError>,
}

/// Everything that should be in the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingConfig {
    /// The models by their names in the engine.
    pub models: BTreeMap<ServableName, ServedModel>,
}

/// One model of a [`ServingConfig`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// Absolute path, as the engine sees it; holds a numeric directory a version.
    pub base_path: PathBuf,
    /// The versions that should be loaded. Must not be empty, and each must
    /// exist on disk: an engine waits for ever for a name without versions.
    pub versions: BTreeSet<Version>,
}
