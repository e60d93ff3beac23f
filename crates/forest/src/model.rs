//! One tree model.

use std::{borrow::Cow, ops::Range, sync::Arc, time::Instant};

use outrigger_core::{DType, Failure, Interface, Shape, Tensor, TensorSpec};
use outrigger_run::{
    Call, RunError,
    local::{self, floats, integers, malformed, tensor},
};
use outrigger_trees::{self as trees, Options, Output, Rows};

use crate::Scoring;

/// The only signature.
const SIGNATURE: &str = "serving_default";
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
}

impl Model {
    /// A model that scores by these settings.
    ///
    /// # Errors
    /// IMAGE_INVALID if the model does not have the iterations of the settings.
    pub fn new(trees: trees::Model, scoring: &Scoring) -> Result<Self, Failure> {
        let iterations = scoring.iterations.of(&trees)?;
        Ok(Self { trees, iterations, missing: scoring.missing })
    }

    /// Rows of features with NaN for each missing value.
    fn with_missing<'a>(&self, values: Cow<'a, [f32]>) -> Cow<'a, [f32]> {
        let Some(missing) = self.missing else { return values };
        let replaced = |value: &f32| if *value == missing { f32::NAN } else { *value };
        Cow::Owned(values.iter().map(replaced).collect())
    }

    /// The features of a call, with NaN for each missing value.
    fn values<'a>(&self, call: &'a Call) -> Result<Cow<'a, [f32]>, RunError> {
        let (features, columns) = (call.input(FEATURES)?, self.trees.features());
        if !matches!(features.shape[..], [_, width] if width == size(columns)) {
            return Err(malformed(format!("{FEATURES} must be rows of {columns} columns")));
        }
        Ok(self.with_missing(floats(features)?))
    }

    fn rows<'a>(&self, values: &'a [f32]) -> Result<Rows<'a>, RunError> {
        Rows::new(values, self.trees.features())
            .ok_or_else(|| malformed(format!("{FEATURES} must be whole rows")))
    }

    fn explainer(&self) -> Result<trees::Explainer<'_>, RunError> {
        let explainer = self.trees.explainer(Some(self.iterations.clone()));
        explainer.map_err(|unexplained| RunError::Unexplained(unexplained.to_string()))
    }

    /// The predictions for `rows` as the output called `name`.
    fn predict(&self, name: &Arc<str>, rows: Rows<'_>) -> Result<Tensor, RunError> {
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

    /// Columns of an output.
    fn width(&self, output: Output) -> usize {
        self.trees.columns(&self.options(output))
    }
}

impl local::Model for Model {
    fn interface(&self, signature: &str) -> Option<Interface> {
        let spec = |name: &str, dtype: DType, sizes: &[i64]| {
            TensorSpec::new(name, dtype.into(), Shape::of(sizes))
        };
        let columns = self.trees.feature_names().iter().map(|name| Arc::from(name.as_str()));
        let features = TensorSpec {
            columns: columns.collect(),
            ..spec(FEATURES, DType::Float32, &[-1, size(self.trees.features())])
        };
        let outputs = OUTPUTS.map(|(name, output)| {
            let dtype = if output == Output::Leaf { DType::Int32 } else { DType::Float32 };
            let sizes = sizes(0, self.width(output));
            spec(name, dtype, &[&[-1][..], &sizes[1..]].concat())
        });
        (signature == SIGNATURE).then(|| Interface::new(vec![features], outputs.into()))
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
        let (explainer, values) = (self.explainer()?, self.values(&call)?);
        let rows = self.rows(&values)?;
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

/// The sizes of an output: one number for each row, or several.
fn sizes(rows: usize, width: usize) -> Vec<i64> {
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
