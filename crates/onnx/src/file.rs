//! Reads the interface of an ONNX model from its file, and refuses a file that ONNX Runtime must not
//! open. Weights are skipped: neither decoded nor read into memory.
//!
//! The fields are those of onnx.proto3 (<https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3>).

mod graph;
mod types;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read, Seek},
    path::{Component, Path},
};

use outrigger_core::{Failure, Interface, Reason};
use outrigger_proto::raw::file::{FileError, FileValue, MessageFile};

use self::graph::Graph;

/// The name of a model's file.
pub const FILE: &str = "model.onnx";
/// The most bytes of names and types that are read, each counted with the memory of its own
/// allocation.
const MAX_READ: u64 = 4 << 20;
/// The operator sets that ONNX Runtime has built in. The first is the default one.
const BUILT_IN: [&str; 6] =
    ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"];

/// `ModelProto.graph`, `.training_info` and `.functions`.
const GRAPH: u32 = 7;
const TRAINING: u32 = 20;
const FUNCTIONS: u32 = 25;
/// `TrainingInfoProto.initialization` and `.algorithm`.
const INITIALIZATION: u32 = 1;
const ALGORITHM: u32 = 2;
/// `FunctionProto.node`, `.domain` and `.attribute_proto`, the defaults of its attributes.
const FUNCTION_NODE: u32 = 7;
const FUNCTION_DOMAIN: u32 = 10;
const FUNCTION_DEFAULT: u32 = 11;

/// An error in a model's file.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The file cannot be read, or is no ONNX model.
    #[error("{FILE} cannot be read: {0}")]
    Unreadable(#[from] FileError),
    /// The file has no graph.
    #[error("{FILE} has no graph")]
    NoGraph,
    /// Weights are in a file outside of the package, or in one that it does not have.
    #[error("{FILE} has weights in {0:?}, which is not a file of the package beside it")]
    External(String),
    /// Weights are beyond the end of their file.
    #[error("{FILE} has the weights {tensor:?} in {location:?} beyond the end of that file")]
    Beyond {
        /// The name of the weights.
        tensor: String,
        /// The path of the file.
        location: String,
    },
    /// Weights have another number of bytes than their type and shape take.
    #[error(
        "{FILE} has the weights {tensor:?} in {location:?} with the length {length}, but their type \
         and shape take {size} bytes"
    )]
    Length {
        /// The name of the weights.
        tensor: String,
        /// The path of the file.
        location: String,
        /// The length that the model gives.
        length: u64,
        /// The bytes of all elements.
        size: u64,
    },
    /// The model needs operators that ONNX Runtime does not have.
    #[error("{FILE} has operators of {0:?}, which ONNX Runtime does not have")]
    Operators(String),
}

impl From<OnnxError> for Failure {
    fn from(error: OnnxError) -> Self {
        Self::because(Reason::ImageInvalid, &error)
    }
}

/// The parts of a model that are read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The operator sets of all nodes.
    domains: BTreeSet<String>,
    /// The operator sets of functions that the model itself defines.
    defined: BTreeSet<String>,
    /// The files of external weights, with the byte behind the last of them and its tensor;
    /// `u64::MAX` if a place is no number.
    external: BTreeMap<String, (u64, String)>,
    /// The first weights whose length is not that of their shape.
    wrong: Option<OnnxError>,
}

/// Reads and checks the model in `directory`. Blocks.
///
/// # Errors
/// [`OnnxError`].
pub fn read(directory: &Path) -> Result<Interface, OnnxError> {
    let file = File::open(directory.join(FILE)).map_err(FileError::from)?;
    let (interface, found) = read_from(file)?;
    found.check(directory)?;
    Ok(interface)
}

fn read_from(file: impl Read + Seek) -> Result<(Interface, Found), OnnxError> {
    let (mut file, mut left) = MessageFile::open(file, MAX_READ)?;
    let (mut graph, mut found) = (None, Found::default());
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (GRAPH, FileValue::Bytes(size)) => {
                graph = Some(Graph::read(&mut file, size, &mut found)?)
            }
            (TRAINING, FileValue::Bytes(size)) => training(&mut file, size, &mut found)?,
            (FUNCTIONS, FileValue::Bytes(size)) => function(&mut file, size, &mut found)?,
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok((graph.ok_or(OnnxError::NoGraph)?.interface(), found))
}

fn function<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    found: &mut Found,
) -> Result<(), FileError> {
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (FUNCTION_NODE, FileValue::Bytes(size)) => graph::node(file, size, found, 0)?,
            (FUNCTION_DEFAULT, FileValue::Bytes(size)) => graph::attribute(file, size, found, 0)?,
            (FUNCTION_DOMAIN, FileValue::Bytes(size)) => {
                let domain = file.text(size)?;
                found.defined.insert(domain);
            }
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(())
}

/// Looks for files in the graphs of a training, which are not run.
fn training<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    found: &mut Found,
) -> Result<(), FileError> {
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (INITIALIZATION | ALGORITHM, FileValue::Bytes(size)) => {
                graph::inner(file, size, found, 0)?;
            }
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(())
}

impl Found {
    fn check(self, directory: &Path) -> Result<(), OnnxError> {
        let is_known = |domain: &&String| {
            BUILT_IN.contains(&domain.as_str()) || self.defined.contains(*domain)
        };
        if let Some(unknown) = self.domains.iter().find(|domain| !is_known(domain)) {
            return Err(OnnxError::Operators(unknown.clone()));
        }
        for (location, (end, tensor)) in self.external {
            if !is_beside(directory, &location) {
                return Err(OnnxError::External(location));
            }
            let file = directory.join(&location).metadata().map_err(FileError::from)?;
            if end > file.len() {
                return Err(OnnxError::Beyond { tensor, location });
            }
        }
        self.wrong.map_or(Ok(()), Err)
    }
}

/// A part of locations that ONNX Runtime takes for addresses in memory, and not for paths.
const ADDRESS: &str = "_ORT_MEM_ADDR_";

/// True if `location` is a regular file in `directory` or below it, without any symbolic link.
fn is_beside(directory: &Path, location: &str) -> bool {
    if location.contains(ADDRESS) {
        return false;
    }
    let location = Path::new(location);
    let mut path = directory.to_owned();
    let mut components = location.components().peekable();
    if components.peek().is_none() {
        return false;
    }
    for component in components {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => continue,
            _ => return false,
        }
        if path.symlink_metadata().map_or(true, |found| found.file_type().is_symlink()) {
            return false;
        }
    }
    path.is_file()
}

#[cfg(test)]
mod tests;
