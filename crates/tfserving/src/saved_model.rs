//! The signatures of a saved_model.pb, read into interfaces.

mod graphs;

use std::io::{Read, Seek};

use outrigger_core::{Interface, Reason};

use crate::interface::interface;

/// The tag of the serving graph.
const SERVE: &str = "serve";

/// A pseudo signature that TensorFlow writes into every export.
const INIT: &str = "__saved_model_init_op";

/// An error in reading a SavedModel's interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SavedModelError {
    /// The bytes are not a valid saved_model.pb.
    #[error("saved_model.pb cannot be read: {0}")]
    Unreadable(String),
    /// The tags and signatures are larger than is read.
    #[error("the tags and signatures of saved_model.pb have more than {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: u64,
    },
    /// No graph is tagged "serve" and nothing else.
    #[error("saved_model.pb has no graph with the tag \"serve\" alone; its graphs have {found:?}")]
    NotServable {
        /// The tags of each graph.
        found: Vec<Vec<String>>,
    },
    /// The model has no such signature.
    #[error("metadata.json names signature {wanted:?}; the model has {found:?}")]
    Missing {
        /// The requested signature.
        wanted: String,
        /// The model's signatures.
        found: Vec<String>,
    },
}

impl SavedModelError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        Reason::ImageInvalid
    }
}

/// Reads the interface of one signature from saved_model.pb. The graph is skipped: neither decoded
/// nor read into memory.
///
/// # Errors
/// The file is no SavedModel, its tags and signatures are too large, none of its graphs serves, or
/// it has no such signature.
pub fn read_interface(
    saved_model_pb: impl Read + Seek,
    signature_name: &str,
) -> Result<Interface, SavedModelError> {
    let graphs = graphs::graphs(saved_model_pb)?;
    let Some(graph) = graphs.iter().find(|graph| graph.tags == [SERVE]) else {
        let found = graphs.into_iter().map(|graph| graph.tags).collect();
        return Err(SavedModelError::NotServable { found });
    };
    let mut signatures = graph.signatures()?;
    signatures.remove(INIT);
    let Some(entry) = signatures.get(signature_name) else {
        let found = signatures.into_keys().collect();
        return Err(SavedModelError::Missing { wanted: signature_name.to_owned(), found });
    };
    Ok(interface(&graphs::signature(entry)?))
}

#[cfg(test)]
mod tests;
