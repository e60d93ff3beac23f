//! The tensors of sparse rows: the ids of all rows, their weights, and the number of ids of each row.

use std::sync::Arc;

use outrigger_core::{Content, DType, Tensor};

use crate::{
    column::{RowLists, WEIGHTED},
    plan::{InputPlan, Join},
};

/// The names of the three tensors.
#[derive(Debug, Clone, Copy)]
pub(super) struct SparseNames<'p> {
    ids: &'p Arc<str>,
    weights: &'p Arc<str>,
    lengths: &'p Arc<str>,
}

impl<'p> SparseNames<'p> {
    /// The names of a sparse input; `None` for another one.
    pub(super) fn of(input: &'p InputPlan) -> Option<Self> {
        let (weights, lengths) = (input.weights.as_ref()?, input.lengths.as_ref()?);
        Some(Self { ids: &input.tensor, weights, lengths })
    }

    /// As [`Self::of`], for a joined input.
    pub(super) fn of_join(join: &'p Join) -> Option<Self> {
        let (weights, lengths) = (join.weights.as_ref()?, join.lengths.as_ref()?);
        Some(Self { ids: &join.tensor, weights, lengths })
    }
}

/// Sparse rows while they are written, as the bytes of their tensors.
#[derive(Debug, Default)]
pub(super) struct SparseRows {
    ids: Vec<u8>,
    weights: Vec<u8>,
    lengths: Vec<u8>,
}

impl SparseRows {
    /// Creates an empty buffer with room for `rows` rows of `ids` ids in total.
    pub(super) fn new(rows: usize, ids: usize) -> Self {
        Self {
            ids: Vec::with_capacity(8 * ids),
            weights: Vec::with_capacity(4 * ids),
            lengths: Vec::with_capacity(8 * rows),
        }
    }

    /// Appends a row of these ids with their weights.
    pub(super) fn push<'a>(&mut self, row: impl Iterator<Item = &'a [u8; WEIGHTED]>) {
        let mut length: u64 = 0;
        for entry in row {
            let (id, weight) = entry.split_at(8);
            self.ids.extend_from_slice(id);
            self.weights.extend_from_slice(weight);
            length += 1;
        }
        self.lengths.extend_from_slice(&length.to_le_bytes());
    }

    /// The tensors of the ids, of the weights and of the lengths, whose shape is `rows`.
    pub(super) fn into_tensors(self, names: SparseNames<'_>, rows: Vec<i64>) -> [Tensor; 3] {
        let tensor = |name: &Arc<str>, dtype, shape, bytes: Vec<u8>| Tensor {
            name: Arc::clone(name),
            dtype,
            shape,
            content: Content::Bytes(bytes.into()),
        };
        let count = i64::try_from(self.ids.len() / 8).expect("sizes are limited");
        [
            tensor(names.ids, DType::Int64, vec![count], self.ids),
            tensor(names.weights, DType::Float32, vec![count], self.weights),
            tensor(names.lengths, DType::Int64, rows, self.lengths),
        ]
    }
}

/// The tensors of rows that have `width` lists each, one after the other.
pub(super) fn tensors(
    names: SparseNames<'_>,
    lists: &RowLists,
    width: usize,
    shape: Vec<i64>,
) -> [Tensor; 3] {
    let rows = lists.len() / width;
    let mut sparse = SparseRows::new(rows, (0..rows).map(|row| lists.count(row, width)).sum());
    (0..rows).for_each(|row| sparse.push(lists.ids(row, width)));
    sparse.into_tensors(names, shape)
}

#[cfg(test)]
mod tests;
