//! The kinds of model packages.

use std::path::Path;

use outrigger_core::{Failure, Interface};

/// A kind of models, as metadata.json names it in `framework`.
#[derive(Debug, Clone, Copy)]
pub struct Framework {
    /// The name in metadata.json.
    pub name: &'static str,
    /// Where an image holds the model.
    pub layout: Layout,
    /// Reads the interface of the signature called so from the model's directory.
    ///
    /// The failure's reason is IMAGE_INVALID where the model is at fault.
    pub interface: fn(model: &Path, signature: &str) -> Result<Interface, Failure>,
}

/// Where an image holds a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The model's directory, relative to `/data`.
    pub directory: &'static str,
    /// A file that the model's directory must hold.
    pub file: &'static str,
    /// Bytes which that file may have.
    pub max_file: u64,
    /// The model may also be one level down, in the only directory whose name is a
    /// number.
    pub versioned: bool,
}
