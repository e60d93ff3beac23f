//! What the SavedModel itself says: its signatures, and whether metadata.json
//! agrees with them.

mod check;
mod wire;

use std::collections::BTreeMap;

use outrigger_core::Reason;
use outrigger_proto::tensorflow::SignatureDef;

pub(crate) use check::check;

/// The tag of the graph that serves.
pub const SERVE: &str = "serve";

/// A pseudo signature that TensorFlow writes into every export.
const INIT: &str = "__saved_model_init_op";

/// Why a SavedModel's signature cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The bytes are not those of a saved_model.pb.
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
        /// The signature named.
        wanted: String,
        /// Those there are.
        found: Vec<String>,
    },
    /// metadata.json and the signature contradict each other.
    #[error("{path}: metadata.json says {file}; the model says {model}")]
    Contradiction {
        /// Where in metadata.json, such as `inputs[1].dtype`.
        path: String,
        /// What the file says.
        file: String,
        /// What the signature says.
        model: String,
    },
}

impl SignatureError {
    /// The stable reason.
    pub fn reason(&self) -> Reason {
        Reason::ImageInvalid
    }
}

/// Reads one signature out of the bytes of a saved_model.pb. The graph is
/// stepped over, not decoded.
///
/// # Errors
/// The bytes are no SavedModel, none of its graphs serves, or it has no such
/// signature.
pub fn read(saved_model_pb: &[u8], signature_name: &str) -> Result<SignatureDef, SignatureError> {
    let mut all = read_all(saved_model_pb)?;
    all.remove(signature_name).ok_or_else(|| SignatureError::Missing {
        wanted: signature_name.to_owned(),
        found: all.into_keys().collect(),
    })
}

/// Reads all signatures of the serving graph, by name.
///
/// # Errors
/// The bytes are no SavedModel, or none of its graphs serves.
pub fn read_all(saved_model_pb: &[u8]) -> Result<BTreeMap<String, SignatureDef>, SignatureError> {
    let unreadable = |error: prost::DecodeError| SignatureError::Unreadable(error.to_string());
    let graphs = wire::graphs(saved_model_pb).map_err(unreadable)?;
    let serving = graphs.iter().find(|graph| graph.tags == [SERVE]);
    let Some(graph) = serving else {
        let found = graphs.into_iter().map(|graph| graph.tags).collect();
        return Err(SignatureError::NotServable { found });
    };
    let mut signatures = graph.signatures().map_err(unreadable)?;
    signatures.remove(INIT);
    Ok(signatures)
}

#[cfg(test)]
mod tests;
