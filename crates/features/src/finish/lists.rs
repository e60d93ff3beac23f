//! The tensors of lists: the elements of all rows, and the number of elements of each.

use std::sync::Arc;

use outrigger_core::{Content, DType, Tensor};

use crate::{column::RowLists, plan::InputPlan};

/// The shape of a tensor with a number for each row: `[B]`, or `[B, T]` for treatments.
pub(super) fn rows(input: &InputPlan, users: usize, treatments: usize) -> Vec<i64> {
    let mut shape = input.shape(users, treatments);
    shape.pop();
    shape
}

/// The tensor with the number of elements of each row.
pub(super) fn lengths(name: &Arc<str>, lists: &RowLists, shape: Vec<i64>) -> Tensor {
    let content = Content::Bytes(lists.lengths().into());
    Tensor { name: Arc::clone(name), dtype: DType::Int64, shape, content }
}

/// The shape of the tensor with the elements of all rows.
pub(super) fn shape(content: &Content, dtype: DType) -> Vec<i64> {
    let elements = match content {
        Content::Bytes(bytes) => bytes.len() / dtype.size().unwrap_or(1),
        Content::Strings(texts) => texts.len(),
    };
    vec![i64::try_from(elements).expect("sizes are limited")]
}

#[cfg(test)]
mod tests;
