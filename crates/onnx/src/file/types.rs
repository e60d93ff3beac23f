//! The names, types and shapes of a graph's inputs and outputs.

use std::io::{Read, Seek};

use outrigger_core::{DType, ElementType, Shape, TensorSpec};
use outrigger_proto::raw::file::{FileError, FileValue, MessageFile};

/// `ValueInfoProto.name` and `.type`.
const NAME: u32 = 1;
const TYPE: u32 = 2;
/// `TypeProto.tensor_type`. All other types are composite.
const TENSOR_TYPE: u32 = 1;
/// `TypeProto.Tensor.elem_type` and `.shape`.
const ELEMENT_TYPE: u32 = 1;
const SHAPE: u32 = 2;
/// `TensorShapeProto.dim`, and `Dimension.dim_value`; a dimension without it has any size.
const DIMENSION: u32 = 1;
const DIMENSION_VALUE: u32 = 1;

/// The types of `TensorProto.DataType` in their order, those that Outrigger sends and receives, or
/// their names.
const ELEMENTS: [Result<DType, &str>; 17] = [
    Err("undefined"),
    Ok(DType::Float32),
    Ok(DType::UInt8),
    Ok(DType::Int8),
    Ok(DType::UInt16),
    Ok(DType::Int16),
    Ok(DType::Int32),
    Ok(DType::Int64),
    Ok(DType::String),
    Ok(DType::Bool),
    Ok(DType::Float16),
    Ok(DType::Float64),
    Ok(DType::UInt32),
    Ok(DType::UInt64),
    Err("complex64"),
    Err("complex128"),
    Ok(DType::BFloat16),
];

/// The bytes of an element, if Outrigger knows the type.
pub(super) fn width(element: u64) -> Option<u64> {
    let known = ELEMENTS.get(usize::try_from(element).ok()?)?;
    known.ok()?.size().map(|size| size as u64)
}

/// Reads the next `size` bytes as an input or an output.
pub(super) fn port<R: Read + Seek>(
    file: &mut MessageFile<R>,
    size: u64,
) -> Result<TensorSpec, FileError> {
    let (mut name, mut left) = (String::new(), size);
    let (mut dtype, mut shape) = (ElementType::Composite, Shape::Any);
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (NAME, FileValue::Bytes(size)) => name = file.text(size)?,
            (TYPE, FileValue::Bytes(size)) => (dtype, shape) = type_of(file, size)?,
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(TensorSpec::new(name, dtype, shape))
}

fn type_of<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
) -> Result<(ElementType, Shape), FileError> {
    let mut found = (ElementType::Composite, Shape::Any);
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (TENSOR_TYPE, FileValue::Bytes(size)) => found = tensor_type(file, size)?,
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(found)
}

fn tensor_type<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
) -> Result<(ElementType, Shape), FileError> {
    let (mut element, mut shape) = (0, Shape::Any);
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (ELEMENT_TYPE, FileValue::Varint(number)) => element = number,
            (SHAPE, FileValue::Bytes(size)) => shape = Shape::Sizes(sizes(file, size)?),
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    let known = usize::try_from(element).ok().and_then(|number| ELEMENTS.get(number).copied());
    let element = match known {
        Some(Ok(dtype)) => ElementType::Known(dtype),
        Some(Err(name)) => ElementType::Unsupported(name.into()),
        None => ElementType::Unsupported(format!("type {element}").into()),
    };
    Ok((element, shape))
}

fn sizes<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
) -> Result<Vec<Option<u64>>, FileError> {
    let mut sizes = Vec::new();
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            (DIMENSION, FileValue::Bytes(size)) => {
                file.charge(0)?;
                sizes.push(dimension(file, size)?);
            }
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(sizes)
}

fn dimension<R: Read + Seek>(
    file: &mut MessageFile<R>,
    mut left: u64,
) -> Result<Option<u64>, FileError> {
    let mut found = None;
    while let Some((field, value)) = file.next(&mut left)? {
        match (field, value) {
            // A negative size stands for any.
            (DIMENSION_VALUE, FileValue::Varint(size)) => {
                found = Some(size).filter(|size| i64::try_from(*size).is_ok());
            }
            (_, FileValue::Bytes(size)) => file.skip(size)?,
            (_, FileValue::Varint(_)) => {}
        }
    }
    Ok(found)
}
