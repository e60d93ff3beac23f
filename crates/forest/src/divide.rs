//! Divides calls into parts of their rows.
//!
//! The rows of a model of trees are independent of each other, so the scores of parts have the bits
//! of those of the whole. Inputs that are not whole rows are not divided: the run of the whole call
//! reports what is wrong with them.

use std::ops::Range;

use bytes::Bytes;
use outrigger_core::{Content, Tensor};
use outrigger_run::{
    Call,
    local::{floats, unsigned},
};

use crate::{model, sparse::SparseInput};

/// The number of rows of a call, whose inputs are those of `sparse` that it has, and dense ones.
pub(crate) fn rows(call: &Call, sparse: &[&SparseInput]) -> Option<usize> {
    let present = sparse.iter().find(|input| input.is_in(call));
    let tensor = match present {
        Some(input) => call.input(input.lengths).ok()?,
        None => call.inputs.first()?,
    };
    usize::try_from(*tensor.shape.first()?).ok()
}

/// Divides a call into calls of `rows` rows each; the last one may have fewer.
pub(crate) fn parts(call: &Call, sparse: &[&SparseInput], rows: usize) -> Option<Vec<Call>> {
    let all = self::rows(call, sparse)?;
    let mut inputs = Vec::with_capacity(call.inputs.len());
    let present: Vec<_> = sparse.iter().filter(|input| input.is_in(call)).collect();
    for input in &present {
        inputs.push(Input::sparse(call, input, (all, rows))?);
    }
    let is_sparse = |tensor: &Tensor| present.iter().any(|input| input.has(&tensor.name));
    for tensor in call.inputs.iter().filter(|tensor| !is_sparse(tensor)) {
        inputs.push(match &*tensor.name {
            model::LIMIT => Input::Whole(tensor),
            _ => Input::Dense(Slices::new(tensor, all)?),
        });
    }
    let starts = (0..all).step_by(rows.max(1)).enumerate();
    let part = |(part, start): (usize, usize)| {
        let rows = start..all.min(start + rows);
        let inputs = inputs.iter().flat_map(|input| input.part(part, rows.clone())).collect();
        let stages = call.stages.clone();
        Call { stages, ..Call::new(inputs, call.outputs.clone(), call.deadline) }
    };
    Some(starts.map(part).collect())
}

/// An input, and how it is divided.
enum Input<'c> {
    /// An input that is the same for all rows.
    Whole(&'c Tensor),
    Dense(Slices<'c>),
    /// The tensors of ids, weights and lengths, and the entry at which each part begins and the last
    /// one ends.
    Sparse([Slices<'c>; 3], Vec<usize>),
}

impl<'c> Input<'c> {
    /// A sparse input of `all` rows, for parts of `rows` rows.
    fn sparse(call: &'c Call, input: &SparseInput, (all, rows): (usize, usize)) -> Option<Self> {
        let [ids, weights, lengths] =
            [input.ids, input.weights, input.lengths].map(|name| call.input(name).ok());
        let (ids, weights, lengths) = (ids?, weights?, lengths?);
        let entries = floats(weights).ok()?.len();
        let mut starts = vec![0];
        let mut end = 0_usize;
        for part in unsigned(lengths).ok()?.chunks(rows.max(1)) {
            for length in part {
                end = end.checked_add(usize::try_from(*length).ok()?)?;
            }
            starts.push(end);
        }
        // The offsets of all entries must fit into 32 bits, as in the whole call.
        u32::try_from(end).ok().filter(|_| end == entries)?;
        let slices = |tensor, count| Slices::new(tensor, count);
        let tensors = [slices(ids, entries)?, slices(weights, entries)?, slices(lengths, all)?];
        Some(Self::Sparse(tensors, starts))
    }

    /// The tensors of the part with this number and these rows.
    fn part(&self, part: usize, rows: Range<usize>) -> Vec<Tensor> {
        match self {
            Self::Whole(tensor) => vec![(*tensor).clone()],
            Self::Dense(slices) => vec![slices.get(rows)],
            Self::Sparse([ids, weights, lengths], starts) => {
                let entries = starts[part]..starts[part + 1];
                vec![ids.get(entries.clone()), weights.get(entries), lengths.get(rows)]
            }
        }
    }
}

/// A tensor that is divided along its first dimension.
struct Slices<'c> {
    tensor: &'c Tensor,
    bytes: &'c Bytes,
    /// The bytes of each element of the first dimension.
    width: usize,
}

impl<'c> Slices<'c> {
    /// A tensor whose first dimension must have this size.
    fn new(tensor: &'c Tensor, size: usize) -> Option<Self> {
        let Content::Bytes(bytes) = &tensor.content else { return None };
        let mut sizes = tensor.shape.iter().map(|size| usize::try_from(*size).ok());
        let first = sizes.next()??;
        let of_element = tensor.dtype.size()?;
        let width = sizes.try_fold(of_element, |width, size| width.checked_mul(size?))?;
        let is_whole = first == size && first.checked_mul(width) == Some(bytes.len());
        is_whole.then_some(Self { tensor, bytes, width })
    }

    /// A part of it, which shares its memory.
    fn get(&self, part: Range<usize>) -> Tensor {
        let mut shape = self.tensor.shape.clone();
        shape[0] = model::size(part.len());
        let bytes = self.bytes.slice(part.start * self.width..part.end * self.width);
        let Tensor { name, dtype, .. } = self.tensor;
        Tensor { name: name.clone(), dtype: *dtype, shape, content: Content::Bytes(bytes) }
    }
}

#[cfg(test)]
mod tests;
