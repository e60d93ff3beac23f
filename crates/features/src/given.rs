//! Sparse rows that a caller gives as they are: ids with weights in place of named features.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_core::{Content, DType, Failure, Tensor};

use crate::{
    limits::{Limits, check_given, refuse_too_many},
    packed::{FeatureCounts, Packed, UserRows},
    place::Place,
    plan::{Join, Plan},
};

/// Rows of ids with weights, in the encoding of the engine's tensors. Each row is a treatment of one
/// user. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenRows {
    /// The number of rows.
    pub rows: usize,
    /// The inputs.
    pub inputs: Vec<GivenInput>,
    /// A further input of the model with one number, int64 `[1]`: its tensor, and the number.
    pub number: Option<(&'static str, i64)>,
    /// The tensor of the output that is the answer.
    pub output: &'static str,
}

/// The rows of an input.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenInput {
    /// The input's tensor, as metadata.json names it.
    pub tensor: &'static str,
    /// The ids of all rows, one row after the other: little-endian int64 with the bits of unsigned
    /// ids.
    pub ids: Bytes,
    /// The weight of each id: little-endian float32.
    pub weights: Bytes,
    /// The number of ids of each row: little-endian int64.
    pub lengths: Bytes,
}

impl GivenRows {
    /// The size of the tensors in bytes.
    pub fn size(&self) -> usize {
        self.inputs.iter().map(GivenInput::size).sum()
    }
}

impl GivenInput {
    fn size(&self) -> usize {
        self.ids.len() + self.weights.len() + self.lengths.len()
    }

    fn is_for(&self, join: &Join) -> bool {
        *self.tensor == *join.tensor
    }

    /// The tensors, of which the last two have the names of `join`.
    fn tensors(&self, join: &Join) -> Option<[Tensor; 3]> {
        let tensor = |name: &Arc<str>, dtype, bytes: &Bytes| {
            let count = bytes.len() / DType::size(dtype)?;
            let shape = vec![i64::try_from(count).ok()?];
            Some(Tensor {
                name: name.clone(),
                dtype,
                shape,
                content: Content::Bytes(bytes.clone()),
            })
        };
        Some([
            tensor(&join.tensor, DType::Int64, &self.ids)?,
            tensor(join.weights.as_ref()?, DType::Float32, &self.weights)?,
            tensor(join.lengths.as_ref()?, DType::Int64, &self.lengths)?,
        ])
    }
}

impl Plan {
    /// Packs rows. The tensors share their memory.
    ///
    /// # Errors
    /// REQUEST_MALFORMED: the model takes other inputs, or has no such output. TOO_MANY_TREATMENTS,
    /// TOO_LARGE.
    pub fn pack_given(&self, given: &GivenRows, limits: &Limits) -> Result<Packed, Failure> {
        let place = Place::default();
        refuse_too_many(given.rows, limits.max_treatments, "inputs", &place)?;
        check_given(given.size(), limits)?;
        let refused = |message: String| place.malformed("inputs", message);
        let tensors = self.given_tensors(given).map_err(refused)?;
        let output = self.given_output(given.output).map_err(refused)?;
        let user = UserRows {
            request_id: Box::default(),
            requested: given.rows,
            errors: Vec::new(),
            ids: None,
            skip: false,
            top_k: 0,
            outputs: vec![output],
        };
        let counts = FeatureCounts::default();
        let (treatments, single_wanted) = (given.rows, false);
        Ok(Packed { tensors, users: vec![user], counts, treatments, single_wanted, raw: None })
    }

    /// The rows as the tensors of the model's inputs, in the order of [`Self::input_names`], and
    /// behind them the number.
    fn given_tensors(&self, given: &GivenRows) -> Result<Vec<Tensor>, String> {
        let is_sparse = |join: &Join| join.weights.is_some();
        if self.joins.is_empty() || !self.joins.iter().all(is_sparse) {
            let names: Vec<_> = self.input_names().map(|name| &**name).collect();
            return Err(format!("the model takes no rows of ids alone: its inputs are {names:?}"));
        }
        let is_known = |input: &GivenInput| self.joins.iter().any(|join| input.is_for(join));
        let mut unknown = given.inputs.iter().filter(|input| !is_known(input));
        if let Some(input) = unknown.find(|input| !input.ids.is_empty()) {
            return Err(format!("the model has no input {:?}", input.tensor));
        }
        let (mut tensors, mut of_lists) = (Vec::new(), Vec::new());
        for join in &self.joins {
            let input = given.inputs.iter().find(|input| input.is_for(join));
            let input = input.ok_or_else(|| format!("the model takes {:?} too", join.tensor))?;
            let [ids, weights, lengths] = input.tensors(join).ok_or("the rows are too large")?;
            tensors.push(ids);
            of_lists.extend([weights, lengths]);
        }
        tensors.append(&mut of_lists);
        tensors.extend(given.number.map(|(name, number)| Tensor {
            name: name.into(),
            dtype: DType::Int64,
            shape: vec![1],
            content: Content::Bytes(Bytes::copy_from_slice(&number.to_le_bytes())),
        }));
        Ok(tensors)
    }

    /// The position in metadata.json of the output with this tensor.
    fn given_output(&self, tensor: &str) -> Result<usize, String> {
        let outputs = &self.metadata.outputs;
        outputs.iter().position(|output| *output.tensor == *tensor).ok_or_else(|| {
            let known: Vec<_> = outputs.iter().map(|output| &*output.tensor).collect();
            format!("the model's metadata.json has no output of {tensor:?}, it has {known:?}")
        })
    }
}

#[cfg(test)]
mod tests;
