//! The models of packages.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use outrigger_core::{Failure, Reason, Uplift};

/// A model of a package: its files, and what metadata.json says to its engine.
#[derive(Debug, Clone, PartialEq)]
pub struct PackagedModel {
    /// The model's directory.
    pub directory: PathBuf,
    /// The control with which an uplift model compares rows.
    pub uplift: Option<Arc<Uplift>>,
    /// True if an input of metadata.json is float64.
    pub is_double: bool,
}

impl PackagedModel {
    /// The directory of a model whose framework has no uplift models.
    ///
    /// # Errors
    /// IMAGE_INVALID if metadata.json makes an uplift model of it.
    pub fn without_uplift(&self) -> Result<&Path, Failure> {
        match self.uplift {
            None => Ok(&self.directory),
            Some(_) => {
                let text = "metadata.json: uplift: the framework has no uplift models";
                Err(Failure::new(Reason::ImageInvalid, text))
            }
        }
    }
}

impl From<&Path> for PackagedModel {
    /// A model that is no uplift model.
    fn from(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), uplift: None, is_double: false }
    }
}
