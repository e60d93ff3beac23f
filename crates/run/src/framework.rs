//! The kinds of model packages.

use std::path::Path;

use outrigger_core::{Failure, Interface, Layouts, PackageLayout};

/// A kind of models, named by `framework` in metadata.json.
#[derive(Debug, Clone, Copy)]
pub struct Framework {
    /// The name in metadata.json.
    pub name: &'static str,
    /// The place of the model in an image.
    pub layout: PackageLayout,
    /// Reads the interface of the signature called `signature` from the model's directory.
    ///
    /// The failure's reason is IMAGE_INVALID if the model is at fault.
    pub interface: fn(model: &Path, signature: &str) -> Result<Interface, Failure>,
}

/// The layouts of `frameworks`.
pub fn layouts(frameworks: &[Framework]) -> Layouts {
    frameworks.iter().map(|framework| (framework.name, framework.layout)).collect()
}
