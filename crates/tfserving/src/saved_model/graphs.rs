//! Reads the few needed fields of saved_model.pb without decoding the graph, which may be hundreds
//! of megabytes.

use std::collections::BTreeMap;

use outrigger_proto::{
    raw::read::{Fields, Value},
    tensorflow::{SignatureDef, meta_graph_def::MetaInfoDef},
};
use prost::{DecodeError, Message};

use super::SavedModelError;

/// `SavedModel.meta_graphs`.
const META_GRAPHS: u32 = 2;
/// `MetaGraphDef.meta_info_def` and `.signature_def`.
const META_INFO: u32 = 1;
const SIGNATURES: u32 = 5;

/// One graph's tags, and its encoded signatures.
pub(super) struct Graph<'a> {
    pub(super) tags: Vec<String>,
    entries: Vec<&'a [u8]>,
}

/// An entry of the map of signatures.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<SignatureDef>,
}

/// The graphs of a SavedModel.
pub(super) fn graphs(saved_model: &[u8]) -> Result<Vec<Graph<'_>>, SavedModelError> {
    let mut graphs = Vec::new();
    for field in messages(saved_model) {
        if let (META_GRAPHS, content) = field? {
            graphs.push(graph(content)?);
        }
    }
    Ok(graphs)
}

fn graph(meta_graph: &[u8]) -> Result<Graph<'_>, SavedModelError> {
    let mut graph = Graph { tags: Vec::new(), entries: Vec::new() };
    for field in messages(meta_graph) {
        match field? {
            (META_INFO, content) => {
                graph.tags.extend(MetaInfoDef::decode(content).map_err(unreadable)?.tags);
            }
            (SIGNATURES, content) => graph.entries.push(content),
            _ => {}
        }
    }
    Ok(graph)
}

/// The length-delimited fields of a message; other fields are skipped.
fn messages(message: &[u8]) -> impl Iterator<Item = Result<(u32, &[u8]), SavedModelError>> {
    let malformed =
        |_| SavedModelError::Unreadable("it is cut short, or not a protobuf message".to_owned());
    Fields::of(message).filter_map(move |field| match field {
        Ok((tag, Value::Bytes(content))) => Some(Ok((tag, content))),
        Ok(_) => None,
        Err(error) => Some(Err(malformed(error))),
    })
}

fn unreadable(error: DecodeError) -> SavedModelError {
    SavedModelError::Unreadable(error.to_string())
}

impl Graph<'_> {
    pub(super) fn signatures(&self) -> Result<BTreeMap<String, SignatureDef>, SavedModelError> {
        let decode = |entry: &&[u8]| {
            let entry = Entry::decode(*entry).map_err(unreadable)?;
            Ok((entry.key, entry.value.unwrap_or_default()))
        };
        self.entries.iter().map(decode).collect()
    }
}
