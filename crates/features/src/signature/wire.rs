//! The few fields of saved_model.pb that matter, read without the graph: it may
//! be hundreds of megabytes.

use std::collections::BTreeMap;

use outrigger_proto::tensorflow::{SignatureDef, meta_graph_def::MetaInfoDef};
use prost::{DecodeError, Message};

use crate::fields::fields;

/// `SavedModel.meta_graphs`.
const META_GRAPHS: u32 = 2;
/// `MetaGraphDef.meta_info_def` and `.signature_def`.
const META_INFO: u32 = 1;
const SIGNATURES: u32 = 5;

/// One graph's tags, and its signatures still encoded.
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
pub(super) fn graphs(saved_model: &[u8]) -> Result<Vec<Graph<'_>>, DecodeError> {
    let mut graphs = Vec::new();
    fields(saved_model, |tag, content| {
        if tag == META_GRAPHS {
            graphs.push(graph(content)?);
        }
        Ok(())
    })?;
    Ok(graphs)
}

fn graph(meta_graph: &[u8]) -> Result<Graph<'_>, DecodeError> {
    let mut graph = Graph { tags: Vec::new(), entries: Vec::new() };
    fields(meta_graph, |tag, content| {
        match tag {
            META_INFO => graph.tags.extend(MetaInfoDef::decode(content)?.tags),
            SIGNATURES => graph.entries.push(content),
            _ => {}
        }
        Ok(())
    })?;
    Ok(graph)
}

impl Graph<'_> {
    pub(super) fn signatures(&self) -> Result<BTreeMap<String, SignatureDef>, DecodeError> {
        let decode = |entry: &&[u8]| {
            let entry = Entry::decode(*entry)?;
            Ok((entry.key, entry.value.unwrap_or_default()))
        };
        self.entries.iter().map(decode).collect()
    }
}
