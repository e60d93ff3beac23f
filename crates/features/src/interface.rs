//! Holds metadata.json against what the model itself says.

mod check;

use outrigger_core::Reason;

pub(crate) use check::check;

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

#[cfg(test)]
mod tests;
