//! Tensors of numbers, for models in this process.

use std::{borrow::Cow, sync::Arc};

use bytes::{BufMut as _, BytesMut};
use outrigger_core::{Content, DType, Reason, Tensor};

use crate::{Call, RunError};

impl Call {
    /// The input called `name`.
    ///
    /// # Errors
    /// The call has no such input.
    pub fn input(&self, name: &str) -> Result<&Tensor, RunError> {
        let found = self.inputs.iter().find(|tensor| &*tensor.name == name);
        found.ok_or_else(|| malformed(format!("there is no input {name}")))
    }
}

/// A type of elements.
///
/// # Safety
/// All bytes must be a valid value.
unsafe trait Element: Copy {
    /// The type of tensors of these elements.
    const DTYPE: DType;

    /// The element of these bytes, which are as many as it has.
    fn from_le(bytes: &[u8]) -> Self;
}

// SAFETY: every four bytes are a valid f32.
unsafe impl Element for f32 {
    const DTYPE: DType = DType::Float32;

    fn from_le(bytes: &[u8]) -> Self {
        bytes.try_into().map_or(Self::NAN, Self::from_le_bytes)
    }
}

// SAFETY: every eight bytes are a valid f64.
unsafe impl Element for f64 {
    const DTYPE: DType = DType::Float64;

    fn from_le(bytes: &[u8]) -> Self {
        bytes.try_into().map_or(Self::NAN, Self::from_le_bytes)
    }
}

// SAFETY: every eight bytes are a valid u64.
unsafe impl Element for u64 {
    const DTYPE: DType = DType::Int64;

    fn from_le(bytes: &[u8]) -> Self {
        bytes.try_into().map_or(Self::MAX, Self::from_le_bytes)
    }
}

/// The elements of a float32 tensor. They are copied only if their memory is not aligned, or if the
/// processor is not little-endian.
///
/// # Errors
/// The tensor has another type.
pub fn floats(tensor: &Tensor) -> Result<Cow<'_, [f32]>, RunError> {
    elements(tensor)
}

/// The elements of a float64 tensor. They are copied as by [`floats`].
///
/// # Errors
/// The tensor has another type.
pub fn doubles(tensor: &Tensor) -> Result<Cow<'_, [f64]>, RunError> {
    elements(tensor)
}

/// The elements of an int64 tensor as unsigned numbers of the same bits: a negative one is larger
/// than all others. They are copied as by [`floats`].
///
/// # Errors
/// The tensor has another type.
pub fn unsigned(tensor: &Tensor) -> Result<Cow<'_, [u64]>, RunError> {
    elements(tensor)
}

fn elements<T: Element>(tensor: &Tensor) -> Result<Cow<'_, [T]>, RunError> {
    let Content::Bytes(bytes) = &tensor.content else { return Err(not_of::<T>(tensor)) };
    if tensor.dtype != T::DTYPE {
        return Err(not_of::<T>(tensor));
    }
    // SAFETY: all bytes are valid elements.
    let (before, aligned, after) = unsafe { bytes.align_to::<T>() };
    if before.is_empty() && after.is_empty() && cfg!(target_endian = "little") {
        return Ok(Cow::Borrowed(aligned));
    }
    Ok(Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(T::from_le).collect()))
}

fn not_of<T: Element>(tensor: &Tensor) -> RunError {
    malformed(format!("{} must be {}", tensor.name, T::DTYPE))
}

/// A float32 tensor of these elements.
pub fn tensor(name: Arc<str>, shape: Vec<i64>, elements: &[f32]) -> Tensor {
    let mut bytes = BytesMut::with_capacity(size_of_val(elements));
    elements.iter().for_each(|element| bytes.put_f32_le(*element));
    Tensor { name, dtype: DType::Float32, shape, content: Content::Bytes(bytes.freeze()) }
}

/// An int32 tensor of elements with these bits.
pub fn integers(name: Arc<str>, shape: Vec<i64>, elements: &[u32]) -> Tensor {
    let mut bytes = BytesMut::with_capacity(size_of_val(elements));
    elements.iter().for_each(|element| bytes.put_u32_le(*element));
    Tensor { name, dtype: DType::Int32, shape, content: Content::Bytes(bytes.freeze()) }
}

/// The failure of a call whose tensors the model cannot take: REQUEST_MALFORMED. A request of
/// features becomes such tensors only by its values, and one of tensors has them as they are.
pub fn malformed(message: String) -> RunError {
    RunError::Refused { reason: Reason::RequestMalformed, message }
}

/// The failure of a call with a value that is NaN or infinite, which the model cannot score:
/// FEATURE_NOT_FINITE.
pub fn not_finite(message: String) -> RunError {
    RunError::Refused { reason: Reason::FeatureNotFinite, message }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn elements_are_read_from_memory_of_any_alignment() {
        let aligned = tensor("x".into(), vec![2], &[1.5, f32::NAN]);
        let Content::Bytes(bytes) = &aligned.content else { panic!("bytes") };
        for offset in 0..4 {
            let mut moved = vec![0; offset];
            moved.extend_from_slice(bytes);
            let content = Content::Bytes(Bytes::from(moved).slice(offset..));
            let moved = Tensor { content, ..aligned.clone() };
            let elements = floats(&moved).expect("float32");
            assert!(elements.len() == 2 && elements[0] == 1.5 && elements[1].is_nan());
        }
        let integers = Tensor { dtype: DType::Int32, ..aligned };
        assert!(floats(&integers).is_err(), "a tensor of another type is refused");
    }

    #[test]
    fn int64_has_the_bits_of_unsigned_numbers() {
        let mut bytes = vec![0];
        [7_i64, -1].iter().for_each(|element| bytes.extend(element.to_le_bytes()));
        let content = Content::Bytes(Bytes::from(bytes).slice(1..));
        let tensor = Tensor { name: "x".into(), dtype: DType::Int64, shape: vec![2], content };
        assert_eq!(*unsigned(&tensor).expect("int64"), [7, u64::MAX]);
        let error = floats(&tensor).expect_err("another type").to_string();
        assert!(error.contains("x must be float32"), "{error}");
    }
}
