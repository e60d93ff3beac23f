//! One tree model.

use std::{borrow::Cow, ops::Range, sync::Arc, time::Instant};

use outrigger_core::{DType, Failure, Interface, Shape, Tensor, TensorSpec};
use outrigger_run::{
    Call, RunError,
    local::{self, floats, integers, malformed, tensor},
};
use outrigger_trees::{self as trees, AnyRows, Options, Output, Rows};

use crate::{
    Scoring,
    sparse::{CallRows, XGBOOST_FEATURES},
};

/// The signature of models unless their package names another one.
pub(crate) const SIGNATURE: &str = "serving_default";
/// The signature with sparse rows.
const SPARSE: &str = "sparse";
const FEATURES: &str = "features";
/// The name of the tensor of contributions.
const CONTRIBUTIONS: &str = "contributions";
/// The outputs by name.
const OUTPUTS: [(&str, Output); 3] =
    [("value", Output::Value), ("margin", Output::Margin), ("leaf", Output::Leaf)];

/// A tree model with its settings of scoring.
#[derive(Debug)]
pub struct Model {
    trees: trees::Model,
    iterations: Range<u32>,
    missing: Option<f32>,
    truncate_ids: bool,
}

/// The input of a call.
enum Values<'c> {
    /// Rows of features, with NaN for each missing value.
    Dense(Cow<'c, [f32]>),
    /// Rows of ids with weights, with NaN for each missing one.
    Sparse(CallRows<'c>),
}

impl Model {
    /// A model that scores by these settings.
    ///
    /// # Errors
    /// IMAGE_INVALID if the model does not have the iterations of the settings.
    pub fn new(trees: trees::Model, scoring: &Scoring) -> Result<Self, Failure> {
        let iterations = scoring.iterations.of(&trees)?;
        let (missing, truncate_ids) = (scoring.missing, scoring.truncate_ids);
        Ok(Self { trees, iterations, missing, truncate_ids })
    }

    /// The library that wrote the trees.
    pub fn library(&self) -> trees::Library {
        self.trees.library()
    }

    /// Rows of features with NaN for each missing value.
    fn with_missing<'a>(&self, values: Cow<'a, [f32]>) -> Cow<'a, [f32]> {
        let Some(missing) = self.missing else { return values };
        let replaced = |value: &f32| if *value == missing { f32::NAN } else { *value };
        Cow::Owned(values.iter().map(replaced).collect())
    }

    fn values<'c>(&self, call: &'c Call) -> Result<Values<'c>, RunError> {
        if XGBOOST_FEATURES.is_in(call) {
            let rows = XGBOOST_FEATURES.rows(call)?;
            let rows = rows.map_weights(|weights| self.with_missing(weights));
            if let Some((row, id)) = rows.get().infinite() {
                return Err(malformed(format!("row {row}: the feature {id} is infinite")));
            }
            return Ok(Values::Sparse(rows));
        }
        self.dense(call).map(Values::Dense)
    }

    /// The dense features of a call, with NaN for each missing value.
    fn dense<'c>(&self, call: &'c Call) -> Result<Cow<'c, [f32]>, RunError> {
        let (features, columns) = (call.input(FEATURES)?, self.trees.features());
        if !matches!(features.shape[..], [_, width] if width == size(columns)) {
            return Err(malformed(format!("{FEATURES} must be rows of {columns} columns")));
        }
        Ok(self.with_missing(floats(features)?))
    }

    fn rows<'a>(&self, values: &'a Values<'_>) -> Result<AnyRows<'a>, RunError> {
        match values {
            Values::Dense(values) => Ok(self.dense_rows(values)?.into()),
            Values::Sparse(rows) if self.truncate_ids => Ok(rows.get().truncated().into()),
            Values::Sparse(rows) => Ok(rows.get().into()),
        }
    }

    fn dense_rows<'a>(&self, values: &'a [f32]) -> Result<Rows<'a>, RunError> {
        Rows::new(values, self.trees.features())
            .ok_or_else(|| malformed(format!("{FEATURES} must be whole rows")))
    }

    fn explainer(&self) -> Result<trees::Explainer<'_>, RunError> {
        let explainer = self.trees.explainer(Some(self.iterations.clone()));
        explainer.map_err(|unexplained| RunError::Unexplained(unexplained.to_string()))
    }

    /// The predictions for `rows` as the output called `name`.
    fn predict(&self, name: &Arc<str>, rows: AnyRows<'_>) -> Result<Tensor, RunError> {
        let output = OUTPUTS.iter().find(|(known, _)| *known == &**name);
        let (_, output) =
            *output.ok_or_else(|| malformed(format!("the model has no output {name}")))?;
        let (name, shape) = (Arc::clone(name), sizes(rows.len(), self.width(output)));
        let count = rows.len() * self.width(output);
        if output == Output::Leaf {
            let mut leaves = vec![0; count];
            self.trees.leaves(rows, Some(self.iterations.clone()), &mut leaves);
            return Ok(integers(name, shape, &leaves));
        }
        let mut values = vec![0.0; count];
        self.trees.predict(rows, &self.options(output), &mut values);
        Ok(tensor(name, shape, &values))
    }

    fn options(&self, output: Output) -> Options {
        Options { output, iterations: Some(self.iterations.clone()) }
    }

    /// The input of dense features.
    fn features(&self) -> TensorSpec {
        let columns = self.trees.feature_names().iter().map(|name| Arc::from(name.as_str()));
        let shape = Shape::of(&[-1, size(self.trees.features())]);
        let columns = columns.collect();
        TensorSpec { columns, ..TensorSpec::new(FEATURES, DType::Float32.into(), shape) }
    }

    /// Columns of an output.
    fn width(&self, output: Output) -> usize {
        self.trees.columns(&self.options(output))
    }
}

impl local::Model for Model {
    fn interface(&self, signature: &str) -> Option<Interface> {
        let inputs = match signature {
            SIGNATURE => vec![self.features()],
            // LightGBM and CatBoost take features that a sparse row lacks for zero, and not for
            // missing.
            SPARSE if self.library() == trees::Library::Xgboost => {
                XGBOOST_FEATURES.specs(false).into()
            }
            _ => return None,
        };
        let outputs = OUTPUTS.map(|(name, output)| {
            let dtype = if output == Output::Leaf { DType::Int32 } else { DType::Float32 };
            output_spec(name, dtype, self.width(output))
        });
        Some(Interface::new(inputs, outputs.into()))
    }

    fn run(&self, call: Call) -> Result<Vec<Tensor>, RunError> {
        let values = self.values(&call)?;
        let rows = self.rows(&values)?;
        match &call.outputs[..] {
            [] => OUTPUTS.iter().map(|(name, _)| self.predict(&Arc::from(*name), rows)).collect(),
            wanted => wanted.iter().map(|name| self.predict(name, rows)).collect(),
        }
    }

    fn contributions(&self) -> Result<usize, RunError> {
        self.explainer().map(|explainer| explainer.columns())
    }

    fn explain(&self, call: Call) -> Result<Tensor, RunError> {
        if XGBOOST_FEATURES.is_in(&call) {
            let text = "contributions are those of dense features, and its rows are sparse";
            return Err(RunError::Unexplained(text.to_owned()));
        }
        let (explainer, values) = (self.explainer()?, self.dense(&call)?);
        let rows = self.dense_rows(&values)?;
        let mut contributions = vec![0.0; rows.len() * explainer.columns()];
        let deadline = call.deadline.into_std();
        if !explainer.explain(rows, &mut contributions, &|| Instant::now() < deadline) {
            return Err(RunError::DeadlineExceeded);
        }
        let shape = [rows.len(), self.trees.groups(), self.trees.features() + 1].map(size);
        Ok(tensor(CONTRIBUTIONS.into(), shape.into(), &contributions))
    }

    fn memory(&self) -> usize {
        self.trees.memory()
    }
}

/// An output with `width` columns.
pub(crate) fn output_spec(name: &str, dtype: DType, width: usize) -> TensorSpec {
    let sizes = [&[-1][..], &sizes(0, width)[1..]].concat();
    TensorSpec::new(name, dtype.into(), Shape::of(&sizes))
}

/// The sizes of an output: one number for each row, or several.
pub(crate) fn sizes(rows: usize, width: usize) -> Vec<i64> {
    match width {
        1 => vec![size(rows)],
        _ => vec![size(rows), size(width)],
    }
}

fn size(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
