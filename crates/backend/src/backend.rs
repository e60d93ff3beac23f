//! The seam between the control plane and whatever runs the models.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use futures::future::BoxFuture;
use http::HeaderMap;
use outrigger_core::{Interface, ServableId, ServableName, Tensor, Version};
use tokio::time::Instant;

use crate::{Error, LoadError, ReloadError, Target};

/// Runs models that lie in a directory both sides see.
///
/// # Guarantees
/// Every call ends by its deadline (`status` and `reload`: by the configured
/// one), also when the engine hangs. Control calls (`signature`, `status`,
/// `reload`) do not wait for predictions.
///
/// # Assumptions
/// One caller reloads, and never again while a reload that timed out may still
/// be at work in the engine.
pub trait Backend: Send + Sync + 'static {
    /// Runs a model once. Answers the outputs asked for, in the order asked
    /// for; all of the signature's, in any order, when none was named.
    fn predict(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, Error>>;

    /// The interface of the signature of that name, as the loaded model has it.
    fn signature<'a>(
        &'a self,
        servable: &'a ServableId,
        signature: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, Error>>;

    /// Every version the engine has ever seen under `name`, also those that
    /// ended, highest first; empty when it does not know the name.
    fn status<'a>(
        &'a self,
        name: &'a ServableName,
    ) -> BoxFuture<'a, Result<Vec<VersionStatus>, Error>>;

    /// Replaces the engine's whole configuration. `Ok` says only that the
    /// engine took it; what is loaded, [`Backend::status`] tells.
    fn reload(&self, config: ServingConfig) -> BoxFuture<'_, Result<(), ReloadError>>;
}

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
    pub state: State,
    /// Why it failed, as far as the engine says. A load that failed shows as
    /// [`State::End`] with an error; one that is being retried shows none.
    pub error: Option<LoadError>,
}

/// Where a version is in its life, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// A state this client does not know.
    Unknown,
    /// Seen, and waiting to be loaded.
    Start,
    /// Being loaded, or waiting to be tried again.
    Loading,
    /// Serving.
    Available,
    /// Being unloaded; requests in flight are finished.
    Unloading,
    /// Unloaded, or failed.
    End,
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
