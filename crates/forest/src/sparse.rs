//! Sparse inputs: ids with weights.

use std::borrow::Cow;

use outrigger_core::{DType, Shape, Tensor, TensorSpec};
use outrigger_run::{
    Call, RunError,
    local::{floats, malformed, unsigned},
};
use outrigger_trees::SparseRows;

/// The features of trees, called as in XGBoost Serving.
pub(crate) const XGBOOST_FEATURES: SparseInput = SparseInput {
    ids: "xgboost_features",
    weights: "xgboost_features_weights",
    lengths: "xgboost_features_lengths",
};

/// The features of a factorisation machine alone, called as in XGBoost Serving.
pub(crate) const FM_FEATURES: SparseInput = SparseInput {
    ids: "fm_features",
    weights: "fm_features_weights",
    lengths: "fm_features_lengths",
};

/// An input of sparse rows: the names of its tensors.
#[derive(Debug)]
pub(crate) struct SparseInput {
    /// The ids of all rows, one row after the other: int64 `[N]` with the bits of unsigned ids.
    pub(crate) ids: &'static str,
    /// The weight of each id: float32 `[N]`.
    pub(crate) weights: &'static str,
    /// The number of ids of each row: int64 `[R]`.
    pub(crate) lengths: &'static str,
}

impl SparseInput {
    /// The tensors. A call leaves out all or none of them if the input is optional.
    pub(crate) fn specs(&self, optional: bool) -> [TensorSpec; 3] {
        let spec = |(name, dtype): (&str, DType)| {
            let spec = TensorSpec::new(name, dtype.into(), Shape::of(&[-1]));
            TensorSpec { optional, ..spec }
        };
        let (ids, lengths) = ((self.ids, DType::Int64), (self.lengths, DType::Int64));
        [ids, (self.weights, DType::Float32), lengths].map(spec)
    }

    /// True if the call has the input.
    pub(crate) fn is_in(&self, call: &Call) -> bool {
        call.inputs.iter().any(|tensor| &*tensor.name == self.ids)
    }

    /// True if one of the tensors is called `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        [self.ids, self.weights, self.lengths].contains(&name)
    }

    /// Reads the rows of a call.
    ///
    /// # Errors
    /// The tensors are no sparse rows.
    pub(crate) fn rows<'c>(&self, call: &'c Call) -> Result<CallRows<'c>, RunError> {
        let vector = |name: &str| call.input(name).and_then(vector);
        let ids = unsigned(vector(self.ids)?)?;
        let weights = floats(vector(self.weights)?)?;
        let lengths = unsigned(vector(self.lengths)?)?;
        let offsets = offsets(&lengths).ok_or_else(|| {
            malformed(format!("{}: the rows have too many ids, or less than none", self.lengths))
        })?;
        let rows = CallRows { ids, weights, offsets };
        match SparseRows::new(&rows.ids, &rows.weights, &rows.offsets) {
            Ok(_) => Ok(rows),
            Err(error) => Err(malformed(format!("{}: {error}", self.ids))),
        }
    }
}

/// The rows of a call.
#[derive(Debug)]
pub(crate) struct CallRows<'c> {
    ids: Cow<'c, [u64]>,
    weights: Cow<'c, [f32]>,
    offsets: Vec<u32>,
}

impl<'c> CallRows<'c> {
    /// `rows` rows without ids.
    pub(crate) fn empty(rows: usize) -> Self {
        Self { ids: Cow::default(), weights: Cow::default(), offsets: vec![0; rows + 1] }
    }

    /// The same rows with other weights, as many as before.
    pub(crate) fn map_weights(self, map: impl FnOnce(Cow<'c, [f32]>) -> Cow<'c, [f32]>) -> Self {
        Self { weights: map(self.weights), ..self }
    }

    pub(crate) fn get(&self) -> SparseRows<'_> {
        SparseRows::new(&self.ids, &self.weights, &self.offsets).expect("they were checked")
    }
}

/// A tensor of one dimension.
fn vector(tensor: &Tensor) -> Result<&Tensor, RunError> {
    match tensor.shape[..] {
        [_] => Ok(tensor),
        _ => Err(malformed(format!("{} must have one dimension", tensor.name))),
    }
}

/// The place at which each row begins, and the end of the last row. None if they do not fit into
/// 32 bits.
fn offsets(lengths: &[u64]) -> Option<Vec<u32>> {
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    let mut end = 0_u32;
    offsets.push(end);
    for length in lengths {
        end = end.checked_add(u32::try_from(*length).ok()?)?;
        offsets.push(end);
    }
    Some(offsets)
}

#[cfg(test)]
mod tests {
    use outrigger_run::local::tensor;
    use tokio::time::Instant;

    use super::*;
    use crate::testing::{int64, sparse};

    fn call(inputs: impl Into<Vec<Tensor>>) -> Call {
        Call::new(inputs.into(), Vec::new(), Instant::now())
    }

    /// A call with these tensors.
    fn tensors(ids: &[u64], weights: &[f32], lengths: &[u64]) -> Call {
        let shape = vec![weights.len() as i64];
        call([
            int64("fm_features", ids),
            tensor("fm_features_weights".into(), shape, weights),
            int64("fm_features_lengths", lengths),
        ])
    }

    #[test]
    fn rows_have_the_ids_that_the_lengths_give_them() {
        let rows = [vec![(7, 1.0), (u64::MAX, 2.0)], vec![], vec![(7, 3.0)]];
        let call = call(sparse("fm_features", &rows));
        assert!(FM_FEATURES.is_in(&call) && !XGBOOST_FEATURES.is_in(&call));
        let read = FM_FEATURES.rows(&call).expect("rows");
        let found = (0..read.get().len()).map(|at| read.get().row(at).collect::<Vec<_>>());
        assert_eq!(found.collect::<Vec<_>>(), rows);
        assert_eq!(CallRows::empty(2).get().len(), 2);
    }

    #[test]
    fn tensors_that_are_no_rows_are_errors() {
        let mut matrix = tensors(&[7], &[1.0], &[1]);
        matrix.inputs[0].shape = vec![1, 1];
        for (call, problem) in [
            (tensors(&[7], &[1.0], &[2]), "fm_features: the offsets do not ascend"),
            (tensors(&[7], &[], &[1]), "fm_features: there are 0 weights for 1 ids"),
            (tensors(&[7], &[1.0], &[2, u64::MAX]), "too many ids, or less than none"),
            (tensors(&[7], &[1.0], &[1 << 31, 1 << 31]), "too many ids"),
            (matrix, "fm_features must have one dimension"),
            (call([]), "there is no input fm_features"),
        ] {
            let error = FM_FEATURES.rows(&call).expect_err(problem).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
