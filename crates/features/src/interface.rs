//! Holds metadata.json against what the model itself says.

mod check;

use outrigger_core::{Interface, Reason};

use crate::metadata::Metadata;

/// A contradiction between metadata.json and the model's interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: metadata.json says {file}; the model says {model}")]
pub struct InterfaceError {
    /// Where in metadata.json, such as `inputs[1].dtype`.
    pub path: String,
    /// What the file says.
    pub file: String,
    /// What the model says.
    pub model: String,
}

impl InterfaceError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        Reason::ImageInvalid
    }
}

impl Metadata {
    /// Holds this file against the interface of the model it comes with.
    ///
    /// # Errors
    /// The first contradiction: what the file says and what the model says.
    pub fn check_interface(&self, interface: &Interface) -> Result<(), InterfaceError> {
        check::check(self, interface)
    }
}

#[cfg(test)]
mod tests;
