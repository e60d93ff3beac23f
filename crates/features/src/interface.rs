//! Comparison of metadata.json with the interface that the model itself declares.

mod categories;
mod check;
mod columns;

pub(crate) use check::SCORES;

use outrigger_core::{Interface, Reason};

use crate::metadata::Metadata;

/// A contradiction between metadata.json and the model's interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: metadata.json says {file}; the model says {model}")]
pub struct InterfaceError {
    /// The path in metadata.json, such as `inputs[1].dtype`.
    pub path: String,
    /// The declaration in metadata.json.
    pub file: String,
    /// The declaration of the model.
    pub model: String,
}

impl InterfaceError {
    /// The stable reason code of this error.
    pub fn reason(&self) -> Reason {
        Reason::ImageInvalid
    }
}

impl Metadata {
    /// Compares this file with the interface of the model that it belongs to.
    ///
    /// # Errors
    /// The first contradiction, with the declarations of the file and of the model.
    pub fn check_interface(&self, interface: &Interface) -> Result<(), InterfaceError> {
        check::check(self, interface)
    }
}

#[cfg(test)]
mod tests;
