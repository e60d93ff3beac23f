//! The tensors of lists: the elements of all rows, and the number of elements of each.

use std::sync::Arc;

use outrigger_core::{Content, DType, Tensor};

use crate::{column::RowLists, plan::InputPlan};

/// The tensor with the number of elements of each row: `[B]`, or `[B, T]` for treatments.
pub(super) fn lengths(
    name: &Arc<str>,
    input: &InputPlan,
    lists: &RowLists,
    (users, treatments): (usize, usize),
) -> Tensor {
    let mut shape = input.shape(users, treatments);
    // A row has one list.
    shape.pop();
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
