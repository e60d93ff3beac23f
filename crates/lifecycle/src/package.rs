//! What the files of a package say of its model.

use outrigger_backend::{FRAMEWORK, read_interface};
use outrigger_core::{Failure, Interface};
use outrigger_features::Metadata;
use outrigger_store::Tree;

/// Reads a package's metadata.json, and the interface of its model.
///
/// # Errors
/// A file cannot be read or breaks a rule of its format, or the framework is
/// one that no engine takes.
pub fn read_model(tree: &Tree) -> Result<(Metadata, Interface), Failure> {
    let unreadable = |error: outrigger_store::Error| Failure::because(error.reason(), &error);
    let metadata = tree.metadata_bytes().map_err(unreadable)?;
    let metadata = Metadata::parse(&metadata)
        .and_then(|metadata| metadata.check_framework(&[FRAMEWORK]).map(|()| metadata))
        .map_err(|error| Failure::because(error.reason(), &error))?;
    let model = tree.saved_model_bytes().map_err(unreadable)?;
    let interface = read_interface(&model, &metadata.signature)
        .map_err(|error| Failure::because(error.reason(), &error))?;
    Ok((metadata, interface))
}
