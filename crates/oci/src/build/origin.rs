//! The image that a directory was pulled from. Its labels and annotations are in no file of the
//! package.

use std::{collections::BTreeMap, fs, io, path::Path};

use outrigger_core::Digest;
use serde::{Deserialize, Serialize};

use super::BuildError;
use crate::{Image, Reference};

/// The file of a pulled directory that holds it; never packed.
pub(super) const FILE: &str = ".outrigger-image.json";

/// The image that a directory was pulled from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The image of this platform, by its digest.
    pub image: Reference,
    /// The labels of its configuration.
    pub labels: BTreeMap<String, String>,
    /// The annotations of its manifest.
    pub annotations: BTreeMap<String, String>,
    /// The digest that the directory has when it is packed, as long as nothing is changed in it.
    pub packed: Option<Digest>,
}

impl Origin {
    /// The origin of the files of `image`.
    pub fn of(image: &Image) -> Self {
        Self {
            image: image.reference.with_digest(image.platform_digest),
            labels: image.labels.clone(),
            annotations: image.annotations.clone(),
            packed: None,
        }
    }

    /// The origin of a directory; `None` if it was not pulled.
    ///
    /// # Errors
    /// [`BuildError::Io`]: the file cannot be read, or is not what a pull wrote.
    pub fn read(directory: &Path) -> Result<Option<Self>, BuildError> {
        let path = directory.join(FILE);
        let failed = BuildError::io(&path);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|error| failed(error.into()))
            }
        }
    }

    /// Notes the origin in a directory.
    ///
    /// # Errors
    /// [`BuildError::Io`].
    pub fn write(&self, directory: &Path) -> Result<(), BuildError> {
        let path = directory.join(FILE);
        let text = serde_json::to_vec_pretty(self).expect("texts are JSON");
        fs::write(&path, text).map_err(BuildError::io(&path))
    }
}
