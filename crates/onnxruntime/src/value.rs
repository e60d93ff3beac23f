//! Tensors as ONNX Runtime has them.

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use half::{bf16, f16};
use ort::{
    session::SessionInputValue,
    value::{DynValue, PrimitiveTensorElementType, Tensor as OrtTensor, TensorElementType},
};
use outrigger_core::{Content, DType, Tensor};

use crate::session::ModelError;

/// An input.
///
/// # Errors
/// The elements do not fit the shape, or a string is not UTF-8 or has a zero byte, which ONNX
/// Runtime does not take.
pub(crate) fn input(tensor: Tensor) -> Result<SessionInputValue<'static>, ModelError> {
    let Tensor { name, dtype, shape, content } = tensor;
    let bytes = match content {
        Content::Strings(strings) => return texts(&name, shape, &strings),
        Content::Bytes(bytes) => bytes,
    };
    match dtype {
        DType::Float32 => numbers(shape, &bytes, f32::from_le_bytes),
        DType::Float64 => numbers(shape, &bytes, f64::from_le_bytes),
        DType::Int8 => numbers(shape, &bytes, i8::from_le_bytes),
        DType::Int16 => numbers(shape, &bytes, i16::from_le_bytes),
        DType::Int32 => numbers(shape, &bytes, i32::from_le_bytes),
        DType::Int64 => numbers(shape, &bytes, i64::from_le_bytes),
        DType::UInt8 => numbers(shape, &bytes, u8::from_le_bytes),
        DType::UInt16 => numbers(shape, &bytes, u16::from_le_bytes),
        DType::UInt32 => numbers(shape, &bytes, u32::from_le_bytes),
        DType::UInt64 => numbers(shape, &bytes, u64::from_le_bytes),
        DType::Float16 => numbers(shape, &bytes, f16::from_le_bytes),
        DType::BFloat16 => numbers(shape, &bytes, bf16::from_le_bytes),
        DType::Bool => numbers(shape, &bytes, |[byte]| byte != 0),
        DType::String => Err(ModelError::Invalid(format!("the input {name} has no strings"))),
    }
}

fn texts(
    name: &str,
    shape: Vec<i64>,
    strings: &[Bytes],
) -> Result<SessionInputValue<'static>, ModelError> {
    let invalid = |what: &str| ModelError::Invalid(format!("a string of the input {name} {what}"));
    let text = |bytes: &Bytes| match std::str::from_utf8(bytes) {
        Ok(text) if text.contains('\0') => Err(invalid("has a zero byte")),
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(invalid("is not UTF-8")),
    };
    let strings = strings.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    Ok(OrtTensor::from_string_array((shape, &strings[..]))?.into())
}

fn numbers<T, const SIZE: usize>(
    shape: Vec<i64>,
    bytes: &Bytes,
    of: impl Fn([u8; SIZE]) -> T,
) -> Result<SessionInputValue<'static>, ModelError>
where
    T: PrimitiveTensorElementType + Debug + Clone + 'static,
{
    let (elements, _) = bytes.as_chunks::<SIZE>();
    let numbers: Vec<T> = elements.iter().map(|element| of(*element)).collect();
    Ok(OrtTensor::from_array((shape, numbers))?.into())
}

/// The output called `name`.
///
/// # Errors
/// It is no tensor, or its elements have a type that no other part knows.
pub(crate) fn output(name: &Arc<str>, value: &DynValue) -> Result<Tensor, ModelError> {
    let refused = |what: &str| ModelError::Runtime(format!("the output {name} {what}"));
    let kind = value.dtype().tensor_type().ok_or_else(|| refused("is no tensor"))?;
    match kind {
        TensorElementType::Float32 => plain(name, value, DType::Float32, f32::to_le_bytes),
        TensorElementType::Float64 => plain(name, value, DType::Float64, f64::to_le_bytes),
        TensorElementType::Int8 => plain(name, value, DType::Int8, i8::to_le_bytes),
        TensorElementType::Int16 => plain(name, value, DType::Int16, i16::to_le_bytes),
        TensorElementType::Int32 => plain(name, value, DType::Int32, i32::to_le_bytes),
        TensorElementType::Int64 => plain(name, value, DType::Int64, i64::to_le_bytes),
        TensorElementType::Uint8 => plain(name, value, DType::UInt8, u8::to_le_bytes),
        TensorElementType::Uint16 => plain(name, value, DType::UInt16, u16::to_le_bytes),
        TensorElementType::Uint32 => plain(name, value, DType::UInt32, u32::to_le_bytes),
        TensorElementType::Uint64 => plain(name, value, DType::UInt64, u64::to_le_bytes),
        TensorElementType::Float16 => plain(name, value, DType::Float16, f16::to_le_bytes),
        TensorElementType::Bfloat16 => plain(name, value, DType::BFloat16, bf16::to_le_bytes),
        TensorElementType::Bool => plain(name, value, DType::Bool, |it: bool| [u8::from(it)]),
        TensorElementType::String => {
            let (shape, strings) = value.try_extract_strings()?;
            let content = Content::Strings(strings.into_iter().map(Bytes::from).collect());
            Ok(tensor(name, DType::String, shape, content))
        }
        other => Err(refused(&format!("has elements of type {other:?}"))),
    }
}

fn plain<T: PrimitiveTensorElementType + Copy, const SIZE: usize>(
    name: &Arc<str>,
    value: &DynValue,
    dtype: DType,
    bytes_of: impl Fn(T) -> [u8; SIZE],
) -> Result<Tensor, ModelError> {
    let (shape, elements) = value.try_extract_tensor::<T>()?;
    let mut bytes = vec![0; elements.len() * SIZE];
    let (places, _) = bytes.as_chunks_mut::<SIZE>();
    for (place, element) in places.iter_mut().zip(elements) {
        *place = bytes_of(*element);
    }
    Ok(tensor(name, dtype, shape, Content::Bytes(bytes.into())))
}

fn tensor(name: &Arc<str>, dtype: DType, shape: &[i64], content: Content) -> Tensor {
    Tensor { name: Arc::clone(name), dtype, shape: shape.to_vec(), content }
}
