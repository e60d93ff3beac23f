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
#[derive(Debug, Clone)]
pub struct Call {
    /// The signature to run, and its servable.
    pub target: Arc<Target>,
    /// The inputs, named as in the signature.
    pub inputs: Vec<Tensor>,
    /// Names of the wanted outputs; empty for all.
    pub outputs: Vec<Arc<str>>,
    /// The time at which the caller stops waiting.
    pub deadline: Instant,
    /// Headers to send with the request.
    pub metadata: HeaderMap,
}

/// The engine's report of one version of a servable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionStatus {
    /// The version.
    pub version: Version,
    /// The version's state.
    pub state: EngineState,
    /// The error of a failed load, as far as the engine reports one. A failed load shows as
    /// [`EngineState::End`] with an error; a load that is being retried shows none.
    pub error: Option<LoadError>,
}

/// The complete configuration wanted for the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingConfig {
    /// The models by their names in the engine.
    pub models: BTreeMap<ServableName, ServedModel>,
}

/// One model of a [`ServingConfig`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// Absolute path in the engine's file system; it holds one numeric directory per version.
    pub base_path: PathBuf,
    /// The versions to load. Must not be empty, and each must exist on disk: an engine waits for
    /// ever for a name without versions.
    pub versions: BTreeSet<Version>,
}
