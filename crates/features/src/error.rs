//! What can be wrong with a model's package, as far as features go.

use outrigger_core::Reason;

use crate::{GoldenError, MetadataError, SignatureError};

/// Why a package's metadata, signature or golden cases cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// metadata.json breaks a rule.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The SavedModel cannot be read, or contradicts metadata.json.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// golden.jsonl cannot be read.
    #[error(transparent)]
    Golden(#[from] GoldenError),
}

impl Error {
    /// The stable reason: the package is not valid, whichever file is at fault.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Metadata(error) => error.reason(),
            Self::Signature(error) => error.reason(),
            Self::Golden(error) => error.reason(),
        }
    }
}
