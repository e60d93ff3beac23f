//! Reads the few needed fields of saved_model.pb from the file. The graph, which may be hundreds of
//! megabytes, is skipped by seeking.

use std::{
    collections::BTreeMap,
    io::{Read, Seek},
};

use outrigger_proto::{
    raw::file::{FileError, FileValue, MessageFile},
    tensorflow::SignatureDef,
};
use prost::{DecodeError, Message};

use super::SavedModelError;

/// `SavedModel.meta_graphs`.
const META_GRAPHS: u32 = 2;
/// `MetaGraphDef.meta_info_def` and `.signature_def`.
const META_INFO: u32 = 1;
const SIGNATURES: u32 = 5;
/// `MetaInfoDef.tags`.
const TAGS: u32 = 4;

/// The most bytes of tags and signatures that are read, each counted with the memory of its own
/// allocation. A signature of a thousand inputs has about 100 KB.
pub(super) const MAX_READ: u64 = 512 << 10;

/// One graph's tags, and its encoded signatures.
pub(super) struct Graph {
    pub(super) tags: Vec<String>,
    entries: Vec<Vec<u8>>,
}

/// The name of an entry of the map of signatures.
#[derive(Clone, PartialEq, Message)]
struct EntryName {
    #[prost(string, tag = "1")]
    key: String,
}

/// The signature of an entry.
#[derive(Clone, PartialEq, Message)]
struct EntryValue {
    #[prost(message, optional, tag = "2")]
    value: Option<SignatureDef>,
}

/// Reads the graphs of a SavedModel.
pub(super) fn graphs(file: impl Read + Seek) -> Result<Vec<Graph>, SavedModelError> {
    let (mut file, mut left) = MessageFile::open(file, MAX_READ)?;
    let mut graphs = Vec::new();
    while let Some((field, size)) = next(&mut file, &mut left)? {
        match field {
            META_GRAPHS => graphs.push(graph(&mut file, size)?),
            _ => file.skip(size)?,
        }
    }
    Ok(graphs)
}

fn graph<R: Read + Seek>(file: &mut MessageFile<R>, mut left: u64) -> Result<Graph, FileError> {
    file.charge(0)?;
    let mut graph = Graph { tags: Vec::new(), entries: Vec::new() };
    while let Some((field, size)) = next(file, &mut left)? {
        match field {
            META_INFO => tags(file, size, &mut graph.tags)?,
            SIGNATURES => graph.entries.push(file.read(size)?),
            _ => file.skip(size)?,
        }
    }
    Ok(graph)
}

fn tags<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    tags: &mut Vec<String>,
) -> Result<(), FileError> {
    while let Some((field, size)) = next(file, &mut left)? {
        match field {
            TAGS => tags.push(file.text(size)?),
            _ => file.skip(size)?,
        }
    }
    Ok(())
}

/// The number and size of the next length-delimited field; all others are skipped.
fn next<R: Read + Seek>(
    file: &mut MessageFile<R>,
    left: &mut u64,
) -> Result<Option<(u32, u64)>, FileError> {
    while let Some((field, value)) = file.next(left)? {
        if let FileValue::Bytes(size) = value {
            return Ok(Some((field, size)));
        }
    }
    Ok(None)
}

impl Graph {
    /// The encoded signatures by name. As in any protobuf map, the last of equal names counts.
    pub(super) fn signatures(&self) -> Result<BTreeMap<String, &[u8]>, SavedModelError> {
        let named = |entry: &'_ Vec<u8>| {
            EntryName::decode(entry.as_slice()).map(|name| name.key).map_err(undecodable)
        };
        self.entries.iter().map(|entry| Ok((named(entry)?, entry.as_slice()))).collect()
    }
}

/// Decodes a signature of [`Graph::signatures`].
pub(super) fn signature(entry: &[u8]) -> Result<SignatureDef, SavedModelError> {
    Ok(EntryValue::decode(entry).map_err(undecodable)?.value.unwrap_or_default())
}

impl From<FileError> for SavedModelError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::TooLarge(limit) => Self::TooLarge { limit },
            other => Self::Unreadable(other.to_string()),
        }
    }
}

fn undecodable(error: DecodeError) -> SavedModelError {
    SavedModelError::Unreadable(error.to_string())
}
