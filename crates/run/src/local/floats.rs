//! Tensors of numbers, for models in this process.

use std::{borrow::Cow, sync::Arc};

use bytes::{BufMut as _, BytesMut};
use outrigger_core::{Content, DType, Tensor};

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

/// The elements of a float32 tensor. They are copied only if their memory is not aligned, or if the
/// processor is not little-endian.
///
/// # Errors
/// The tensor has another type.
pub fn floats(tensor: &Tensor) -> Result<Cow<'_, [f32]>, RunError> {
    let (DType::Float32, Content::Bytes(bytes)) = (tensor.dtype, &tensor.content) else {
        return Err(malformed(format!("{} must be float32", tensor.name)));
    };
    // SAFETY: every four bytes are a valid f32.
    let (before, aligned, after) = unsafe { bytes.align_to::<f32>() };
    if before.is_empty() && after.is_empty() && cfg!(target_endian = "little") {
        return Ok(Cow::Borrowed(aligned));
    }
    let (elements, _) = bytes.as_chunks::<4>();
    Ok(Cow::Owned(elements.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
}

/// A float32 tensor of these elements.
pub fn tensor(name: Arc<str>, shape: Vec<i64>, elements: &[f32]) -> Tensor {
    let mut bytes = BytesMut::with_capacity(size_of_val(elements));
    elements.iter().for_each(|element| bytes.put_f32_le(*element));
    Tensor { name, dtype: DType::Float32, shape, content: Content::Bytes(bytes.freeze()) }
}

/// An int32 tensor of these elements, which must be below 2^31.
pub fn integers(name: Arc<str>, shape: Vec<i64>, elements: &[u32]) -> Tensor {
    let mut bytes = BytesMut::with_capacity(size_of_val(elements));
    elements.iter().for_each(|element| bytes.put_u32_le(*element));
    Tensor { name, dtype: DType::Int32, shape, content: Content::Bytes(bytes.freeze()) }
}

/// The failure of a call whose tensors the model cannot take.
pub fn malformed(message: String) -> RunError {
    RunError::Failed { code: "InvalidArgument".to_owned(), message }
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
}
