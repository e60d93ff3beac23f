//! The places that hold the versions of models.

use std::{fmt, path::PathBuf};

use outrigger_oci::Reference;

/// The place that holds a model's versions, as the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Location {
    /// An image in a registry or a layout directory, without tag and digest.
    Image(Reference),
    /// A directory of numbered versions.
    Directory(PathBuf),
}

impl Location {
    /// The image, unless the versions are in a directory. Only images can be signed.
    pub(crate) fn image(&self) -> Option<&Reference> {
        match self {
            Self::Image(image) => Some(image),
            Self::Directory(_) => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(image) => image.fmt(f),
            Self::Directory(path) => path.display().fmt(f),
        }
    }
}
