//! The signatures of a saved_model.pb, read into interfaces.

mod graphs;

use std::collections::BTreeMap;

use outrigger_core::{Interface, Reason};
use outrigger_proto::tensorflow::SignatureDef;

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

/// Reads the interface of one signature from the bytes of a saved_model.pb. The graph is
/// skipped, not decoded.
///
/// # Errors
/// The bytes are no SavedModel, none of its graphs serves, or it has no such signature.
pub fn read_interface(
    saved_model_pb: &[u8],
    signature_name: &str,
) -> Result<Interface, SavedModelError> {
    let mut all = signatures(saved_model_pb)?;
    let signature = all.remove(signature_name).ok_or_else(|| SavedModelError::Missing {
        wanted: signature_name.to_owned(),
        found: all.into_keys().collect(),
    })?;
    Ok(interface(&signature))
}

/// Reads all signatures of the serving graph, by name.
fn signatures(saved_model_pb: &[u8]) -> Result<BTreeMap<String, SignatureDef>, SavedModelError> {
    let graphs = graphs::graphs(saved_model_pb)?;
    let serving = graphs.iter().find(|graph| graph.tags == [SERVE]);
    let Some(graph) = serving else {
        let found = graphs.into_iter().map(|graph| graph.tags).collect();
        return Err(SavedModelError::NotServable { found });
    };
    let mut signatures = graph.signatures()?;
    signatures.remove(INIT);
    Ok(signatures)
}

#[cfg(test)]
mod tests;
