//! The contents of a model package in the store.

use std::{path::PathBuf, sync::Arc};

use outrigger_core::{Failure, Interface};
use outrigger_features::{GoldenCase, Metadata, Plan};
use outrigger_run::Framework;
use outrigger_store::Tree;

use outrigger_trials::Profiled;

use crate::world::store_failure;

/// The model of a package: its metadata, and the interface declared by its own files.
#[derive(Debug)]
pub struct ModelFiles {
    /// metadata.json.
    pub metadata: Metadata,
    /// The inputs and outputs of the signature that metadata.json names.
    pub interface: Interface,
    /// The model's directory.
    pub directory: PathBuf,
}

impl ModelFiles {
    /// Reads metadata.json and the model's interface. `framework` returns the reader for
    /// models of the framework that metadata.json names.
    ///
    /// # Errors
    /// If a file cannot be read or breaks a rule of its format, or the failure of
    /// `framework`.
    pub fn read(
        tree: &Tree,
        framework: impl FnOnce(&str) -> Result<Framework, Failure>,
    ) -> Result<Self, Failure> {
        let metadata = tree.metadata_bytes().map_err(|error| store_failure(&error))?;
        let metadata =
            Metadata::parse(&metadata).map_err(|error| Failure::because(error.reason(), &error))?;
        let framework = framework(&metadata.framework)?;
        let directory = tree.model_dir();
        let interface = (framework.interface)(&directory, &metadata.signature)?;
        Ok(Self { metadata, interface, directory })
    }

    /// Builds the plan that packs requests for the model.
    ///
    /// # Errors
    /// If metadata.json contradicts the model's interface.
    pub fn plan(self) -> Result<Arc<Plan>, Failure> {
        let plan = Plan::load(self.metadata, &self.interface);
        plan.map(Arc::new).map_err(|error| Failure::because(error.reason(), &error))
    }
}

/// Reads the golden cases of a package; empty if it has none.
///
/// # Errors
/// If the file cannot be read, or a case in it is malformed.
pub fn golden_cases(tree: &Tree, plan: &Plan) -> Result<Vec<GoldenCase>, Failure> {
    let golden = tree.golden_bytes().map_err(|error| store_failure(&error))?;
    let cases = plan.golden_cases(&golden.unwrap_or_default());
    cases.map_err(|error| Failure::because(error.reason(), &error))
}

/// Reads the training profile of a package, if it has one.
///
/// # Errors
/// If the file cannot be read, or does not match the plan.
pub fn training_profile(tree: &Tree, plan: &Plan) -> Result<Option<Arc<Profiled>>, Failure> {
    let profile = tree.profile_bytes().map_err(|error| store_failure(&error))?;
    profile.map(|json| Profiled::read(&json, plan).map(Arc::new)).transpose()
}
