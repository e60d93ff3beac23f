//! The kinds of model packages.

use std::path::Path;

use outrigger_core::{Failure, Interface, PackageLayout};

/// A kind of models, as metadata.json names it in `framework`.
#[derive(Debug, Clone, Copy)]
pub struct Framework {
    /// The name in metadata.json.
    pub name: &'static str,
    /// Where an image holds the model.
    pub layout: PackageLayout,
    /// Reads the interface of the signature called so from the model's directory.
    ///
    /// The failure's reason is IMAGE_INVALID where the model is at fault.
    pub interface: fn(model: &Path, signature: &str) -> Result<Interface, Failure>,
}
