//! The graph of a model: its inputs and outputs, and the files and operators that it needs.

use std::{
    collections::BTreeSet,
    io::{Read, Seek},
};

use outrigger_core::{Interface, Shape, TensorSpec};
use outrigger_proto::raw::{
    file::{FileError, FileValue, MessageFile},
    read::Malformed,
};

use super::{Found, OnnxError, types};

/// Graphs may be nested in the attributes of nodes. ONNX Runtime's own models have a few levels.
const MAX_DEPTH: u32 = 32;

/// `GraphProto.node`, `.initializer`, `.input`, `.output` and `.sparse_initializer`.
const NODE: u32 = 1;
const INITIALIZER: u32 = 5;
const INPUT: u32 = 11;
const OUTPUT: u32 = 12;
const SPARSE_INITIALIZER: u32 = 15;
/// `NodeProto.attribute` and `.domain`.
const ATTRIBUTE: u32 = 5;
const DOMAIN: u32 = 7;
/// `AttributeProto.t`, `.g`, `.tensors`, `.graphs`, `.sparse_tensor` and `.sparse_tensors`.
const TENSOR: u32 = 5;
const GRAPH: u32 = 6;
const TENSORS: u32 = 10;
const GRAPHS: u32 = 11;
const SPARSE_TENSOR: u32 = 22;
const SPARSE_TENSORS: u32 = 23;
/// `SparseTensorProto.values` and `.indices`.
const VALUES: u32 = 1;
const INDICES: u32 = 2;
/// `TensorProto.dims`, `.data_type`, `.name` and `.external_data`.
const TENSOR_SIZES: u32 = 1;
const TENSOR_TYPE: u32 = 2;
const TENSOR_NAME: u32 = 8;
const EXTERNAL_DATA: u32 = 13;
/// `StringStringEntryProto.key` and `.value`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
/// The keys of the path of external weights, and of their first byte and number of bytes there.
const LOCATION: &str = "location";
const OFFSET: &str = "offset";
const LENGTH: &str = "length";

/// The inputs and outputs of a graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    /// The names of weights. A file of ONNX's first versions lists them among the inputs too.
    weights: BTreeSet<String>,
}

impl Graph {
    /// Reads the next `size` bytes as the model's graph.
    pub(super) fn read<R: Read + Seek>(
        file: &mut MessageFile<R>,
        size: u64,
        found: &mut Found,
    ) -> Result<Self, FileError> {
        let (mut graph, mut left) = (Self::default(), size);
        while let Some((field, value)) = file.next(&mut left)? {
            match (field, value) {
                (INPUT, FileValue::Bytes(size)) => graph.inputs.push(types::port(file, size)?),
                (OUTPUT, FileValue::Bytes(size)) => graph.outputs.push(types::port(file, size)?),
                (INITIALIZER, FileValue::Bytes(size)) => {
                    graph.weights.extend(tensor(file, size, found)?);
                }
                (field, FileValue::Bytes(size)) => part(file, (field, size), found, 0)?,
                (_, FileValue::Varint(_)) => {}
            }
        }
        Ok(graph)
    }

    /// The inputs that are no weights, and the outputs. Where an input has any number of rows, an
    /// output of one row has as many: exporters declare it so, and ONNX Runtime only warns.
    pub(super) fn interface(self) -> Interface {
        let Self { mut inputs, mut outputs, weights } = self;
        inputs.retain(|input| !weights.contains(&*input.name));
        let rows = |spec: &TensorSpec| match &spec.shape {
            Shape::Sizes(sizes) => sizes.first().copied(),
            Shape::Any => None,
        };
        if inputs.iter().any(|input| rows(input) == Some(None)) {
            for output in outputs.iter_mut().filter(|output| rows(output) == Some(Some(1))) {
                if let Shape::Sizes(sizes) = &mut output.shape {
                    sizes[0] = None;
                }
            }
        }
        Interface::new(inputs, outputs)
    }
}

/// Looks for files and operators in a field of a graph, `depth` graphs below the model's.
fn part<R: Read + Seek>(
    file: &mut MessageFile<R>,
    (field, size): (u32, u64),
    found: &mut Found,
    depth: u32,
) -> Result<(), FileError> {
    match field {
        NODE => node(file, size, found, depth),
        INITIALIZER => tensor(file, size, found).map(drop),
        SPARSE_INITIALIZER => sparse(file, size, found),
        _ => file.skip(size),
    }
}

/// Looks for files and operators in a node.
pub(super) fn node<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    found: &mut Found,
    depth: u32,
) -> Result<(), FileError> {
    // An absent field is the default set of operators.
    let mut domain = String::new();
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (DOMAIN, FileValue::Bytes(size)) => domain = file.text(size)?,
            (ATTRIBUTE, FileValue::Bytes(size)) => attribute(file, size, found, depth)?,
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    found.domains.insert(domain);
    Ok(())
}

/// Looks for files and operators in an attribute of a node, or its default.
pub(super) fn attribute<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    found: &mut Found,
    depth: u32,
) -> Result<(), FileError> {
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (TENSOR | TENSORS, FileValue::Bytes(size)) => drop(tensor(file, size, found)?),
            (SPARSE_TENSOR | SPARSE_TENSORS, FileValue::Bytes(size)) => sparse(file, size, found)?,
            (GRAPH | GRAPHS, FileValue::Bytes(size)) => inner(file, size, found, depth + 1)?,
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(())
}

/// Looks for files and operators in a graph within a node.
pub(super) fn inner<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    found: &mut Found,
    depth: u32,
) -> Result<(), FileError> {
    if depth > MAX_DEPTH {
        return Err(Malformed::Depth.into());
    }
    while let Some((field, value)) = file.next(&mut left)? {
        if let FileValue::Bytes(size) = value {
            part(file, (field, size), found, depth)?;
        }
    }
    Ok(())
}

fn sparse<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    found: &mut Found,
) -> Result<(), FileError> {
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (VALUES | INDICES, FileValue::Bytes(size)) => drop(tensor(file, size, found)?),
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(())
}

/// Looks for the file of a tensor's elements. Returns the tensor's name, if it has one.
fn tensor<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
    found: &mut Found,
) -> Result<Option<String>, FileError> {
    let mut name = None;
    let mut external = External::default();
    let mut elements = 1_u64;
    let mut width = None;
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (TENSOR_SIZES, FileValue::Varint(size)) => elements = elements.saturating_mul(size),
            (TENSOR_SIZES, FileValue::Bytes(mut packed)) => {
                while packed > 0 {
                    elements = elements.saturating_mul(file.varint(&mut packed)?);
                }
            }
            (TENSOR_TYPE, FileValue::Varint(element)) => width = types::width(element),
            (TENSOR_NAME, FileValue::Bytes(size)) => name = Some(file.text(size)?),
            // The place of the elements (`data_location`) may be forgotten, so its field is not read.
            (EXTERNAL_DATA, FileValue::Bytes(size)) => {
                let (key, value) = entry(file, size)?;
                external.take(&key, value);
            }
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    external.add(name.as_deref(), width.map(|width| elements.saturating_mul(width)), found);
    Ok(name)
}

/// The place of a tensor's elements in files. A file that names several locations is refused for the
/// one that is not allowed.
#[derive(Default)]
struct External {
    locations: Vec<String>,
    offset: Option<String>,
    length: Option<String>,
}

impl External {
    fn take(&mut self, key: &str, value: String) {
        match key {
            LOCATION => self.locations.push(value),
            OFFSET => self.offset = Some(value),
            LENGTH => self.length = Some(value),
            _ => {}
        }
    }

    /// Adds the files of the tensor, whose elements take `size` bytes if that is known.
    fn add(self, name: Option<&str>, size: Option<u64>, found: &mut Found) {
        let Self { locations, offset, length } = self;
        let name = name.unwrap_or_default();
        let number = |text: Option<String>| text.map_or(Some(0), |it| it.parse::<u64>().ok());
        let length = number(length);
        // ONNX Runtime takes a length of 0 for none.
        let other = length.zip(size).filter(|(length, size)| ![0, *size].contains(length));
        let bytes = length.map(|length| length.max(size.unwrap_or_default()));
        let end = number(offset).zip(bytes).and_then(|(offset, bytes)| offset.checked_add(bytes));
        for location in locations {
            if let Some((length, size)) = other {
                let tensor = name.to_owned();
                let location = location.clone();
                let wrong = OnnxError::Length { tensor, location, length, size };
                found.wrong.get_or_insert(wrong);
            }
            let furthest = found.external.entry(location).or_default();
            let this = (end.unwrap_or(u64::MAX), name.to_owned());
            *furthest = std::mem::take(furthest).max(this);
        }
    }
}

fn entry<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
) -> Result<(String, String), FileError> {
    let (mut key, mut value) = (String::new(), String::new());
    while let Some((field, found)) = file.next(&mut left)? {
        match (field, found) {
            (KEY, FileValue::Bytes(size)) => key = file.text(size)?,
            (VALUE, FileValue::Bytes(size)) => value = file.text(size)?,
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok((key, value))
}
