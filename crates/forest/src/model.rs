//! One tree model.

use std::{borrow::Cow, ops::Range, sync::Arc, time::Instant};

use outrigger_core::{
    Categories, ContributionSize, DType, Explanation, Failure, Interface, Shape, Tensor, TensorSpec,
};
use outrigger_run::{
    Call, RunError,
    local::{self, Proceed, floats, integers, malformed, not_finite, tensor, unsigned},
};
use outrigger_trees::{self as trees, AnyRows, Columns, Library, Options, Output};

use crate::{
    Scoring,
    cell::Cell,
    divide,
    gbdt_fm::TREES,
    sparse::{CallRows, XGBOOST_FEATURES},
};

/// The signature of models unless their package names another one.
pub(crate) const SIGNATURE: &str = "serving_default";
/// The signature with sparse rows.
pub(crate) const SPARSE: &str = "sparse";
/// All signatures.
pub(crate) const SIGNATURES: [&str; 2] = [SIGNATURE, SPARSE];
const FEATURES: &str = "features";
/// The optional input of the signature [`SPARSE`] that limits the trees, called as in XGBoost Serving.
pub(crate) const LIMIT: &str = "ntree_limit";
/// The bits of -1, in place of the leaf of a tree that a call's [`LIMIT`] leaves out.
const NO_LEAF: u32 = u32::MAX;
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
    missing: Option<f64>,
    truncate_ids: bool,
    /// True if the rows of calls are float64.
    pub(crate) is_double: bool,
}

/// The input of a call.
enum Values<'c> {
    /// Rows of features, with NaN for each missing value.
    Dense(Cow<'c, [f32]>),
    Doubles(Cow<'c, [f64]>),
    /// Rows of ids with weights, with NaN for each missing one, and the iterations that count.
    Sparse(CallRows<'c>, Range<u32>),
}

impl Model {
    /// A model that scores by these settings.
    ///
    /// # Errors
    /// IMAGE_INVALID if the model does not have the iterations of the settings.
    pub fn new(trees: trees::Model, scoring: &Scoring) -> Result<Self, Failure> {
        let iterations = scoring.iterations.of(trees.header())?;
        let (missing, truncate_ids) = (scoring.missing, scoring.truncate_ids);
        Ok(Self { trees, iterations, missing, truncate_ids, is_double: false })
    }

    /// The description of the trees.
    pub(crate) fn header(&self) -> &trees::Header {
        self.trees.header()
    }

    /// The rows of the call's features, with NaN for each missing value.
    ///
    /// # Errors
    /// The call has no such rows.
    pub(crate) fn values<'c, T: Cell>(&self, call: &'c Call) -> Result<Cow<'c, [T]>, RunError> {
        let (features, columns) = (call.input(FEATURES)?, self.trees.features());
        if !matches!(features.shape[..], [_, width] if width == size(columns)) {
            return Err(malformed(format!("{FEATURES} must be rows of {columns} columns")));
        }
        let values = self.with_missing(T::cells(features)?);
        match T::rows(&values, columns) {
            Some(_) => Ok(values),
            None => Err(malformed(format!("{FEATURES} must be whole rows"))),
        }
    }

    /// Rows of features with NaN for each missing value.
    pub(crate) fn with_missing<'a, T: Cell>(&self, values: Cow<'a, [T]>) -> Cow<'a, [T]> {
        let Some(missing) = self.missing.map(T::of) else { return values };
        let replaced = |value: &T| if *value == missing { T::of(f64::NAN) } else { *value };
        Cow::Owned(values.iter().map(replaced).collect())
    }

    /// True if the model compares in f64 and its rows are float64. Others are rounded to f32.
    pub(crate) fn compares_doubles(&self) -> bool {
        self.is_double && self.trees.library() == Library::Lightgbm
    }

    /// The input of a call.
    fn input<'c>(&self, call: &'c Call) -> Result<Values<'c>, RunError> {
        if !XGBOOST_FEATURES.is_in(call) {
            return match self.compares_doubles() {
                true => self.values(call).map(Values::Doubles),
                false => self.values(call).map(Values::Dense),
            };
        }
        let rows = XGBOOST_FEATURES.rows(call)?;
        let rows = rows.map_weights(|weights| self.with_missing(weights));
        match rows.get().infinite() {
            Some((row, id)) => Err(not_finite(format!("row {row}: the feature {id} is infinite"))),
            None => Ok(Values::Sparse(rows, self.limited(call)?)),
        }
    }

    /// The iterations that count for a call: as many of the model's as its [`LIMIT`] has trees for,
    /// which is in trees of each output. XGBoost takes a limit below one iteration for none.
    fn limited(&self, call: &Call) -> Result<Range<u32>, RunError> {
        let Range { start, end } = self.iterations;
        let Ok(limit) = call.input(LIMIT) else { return Ok(start..end) };
        let [limit] = unsigned(limit)?[..] else {
            return Err(malformed(format!("{LIMIT} must be one number")));
        };
        let count = limit / u64::from(self.header().parallel_trees());
        let limit = u32::try_from(count).ok().filter(|count| *count > 0);
        Ok(start..limit.map_or(end, |count| end.min(start.saturating_add(count))))
    }

    fn iterations_of(&self, values: &Values<'_>) -> Range<u32> {
        match values {
            Values::Dense(_) | Values::Doubles(_) => self.iterations.clone(),
            Values::Sparse(_, iterations) => iterations.clone(),
        }
    }

    fn rows_of<'a>(&self, values: &'a Values<'_>) -> AnyRows<'a> {
        match values {
            Values::Dense(values) => self.rows(values),
            Values::Doubles(values) => self.rows(values),
            Values::Sparse(rows, _) if self.truncate_ids => rows.get().truncated().into(),
            Values::Sparse(rows, _) => rows.get().into(),
        }
    }

    fn rows<'a, T: Cell>(&self, values: &'a [T]) -> AnyRows<'a> {
        T::rows(values, self.trees.features()).expect("whole rows")
    }

    fn explainer(
        &self,
        iterations: &Range<u32>,
        columns: Columns,
    ) -> Result<trees::Explainer<'_>, RunError> {
        let explainer = self.trees.explainer(Some(iterations.clone()), columns);
        explainer.map_err(|unexplained| RunError::Unexplained(unexplained.to_string()))
    }

    /// The predictions for whole rows: the columns of the output, row after row.
    pub(crate) fn scores<T: Cell>(&self, output: Output, values: &[T]) -> Vec<f32> {
        self.scores_of(output, self.rows(values), &self.iterations)
    }

    fn scores_of(&self, output: Output, rows: AnyRows<'_>, iterations: &Range<u32>) -> Vec<f32> {
        let mut scores = vec![0.0; rows.len() * width(self.header(), iterations, output)];
        let options = Options { output, iterations: Some(iterations.clone()) };
        self.trees.predict(rows, &options, &mut scores);
        scores
    }

    /// The leaf of each tree of the model's iterations, row after row. Trees of iterations that the
    /// call leaves out have [`NO_LEAF`], so the output is as wide as the model's interface says.
    fn leaves(&self, rows: AnyRows<'_>, iterations: &Range<u32>) -> Vec<u32> {
        let width = |iterations| width(self.header(), iterations, Output::Leaf);
        let (all, counted) = (width(&self.iterations), width(iterations));
        let mut leaves = vec![0; rows.len() * counted];
        self.trees.leaves(rows, Some(iterations.clone()), &mut leaves);
        if counted == all {
            return leaves;
        }
        let mut whole = vec![NO_LEAF; rows.len() * all];
        for (whole, leaves) in whole.chunks_mut(all).zip(leaves.chunks(counted.max(1))) {
            whole[..counted].copy_from_slice(leaves);
        }
        whole
    }

    /// The predictions for `rows` by these iterations as the output called `name`.
    fn predict(
        &self,
        name: &Arc<str>,
        rows: AnyRows<'_>,
        iterations: &Range<u32>,
    ) -> Result<Tensor, RunError> {
        let output = OUTPUTS.iter().find(|(known, _)| *known == &**name);
        let (_, output) = *output.ok_or_else(|| no_output(name))?;
        let (name, shape) = (Arc::clone(name), sizes(rows.len(), self.width(output)));
        if output == Output::Leaf {
            return Ok(integers(name, shape, &self.leaves(rows, iterations)));
        }
        Ok(tensor(name, shape, &self.scores_of(output, rows, iterations)))
    }

    /// The contributions to the margins of whole rows, `[rows, margins, columns + 1]`: those of the
    /// columns, and behind them the base value.
    ///
    /// # Errors
    /// DEADLINE; CONTRIBUTIONS_UNSUPPORTED.
    pub(crate) fn contributions_to<T: Cell>(
        &self,
        values: &[T],
        proceed: Proceed<'_>,
    ) -> Result<Vec<f32>, RunError> {
        let explainer = self.explainer(&self.iterations, Columns::All)?;
        contributions(&explainer, self.rows(values), proceed)
    }

    /// The output for the contributions of `columns` columns to the margins of rows, each with its
    /// base value.
    pub(crate) fn contributions_tensor(&self, columns: usize, contributions: &[f32]) -> Tensor {
        let (margins, width) = (self.trees.groups(), columns + 1);
        let rows = contributions.len() / (margins * width);
        tensor(CONTRIBUTIONS.into(), [rows, margins, width].map(size).into(), contributions)
    }

    /// Columns of an output.
    pub(crate) fn width(&self, output: Output) -> usize {
        width(self.header(), &self.iterations, output)
    }
}

impl local::Model for Model {
    fn interface(&self, signature: &str) -> Option<Interface> {
        interface(self.header(), (&self.iterations, self.is_double), signature)
    }

    fn run(&self, call: Call) -> Result<Vec<Tensor>, RunError> {
        let values = self.input(&call)?;
        let (rows, iterations) = (self.rows_of(&values), self.iterations_of(&values));
        let predict = |name: &Arc<str>| self.predict(name, rows, &iterations);
        let start = Instant::now();
        let outputs = match &call.outputs[..] {
            [] => OUTPUTS.iter().map(|(name, _)| predict(&Arc::from(*name))).collect(),
            wanted => wanted.iter().map(predict).collect(),
        };
        call.stages.add(TREES, start.elapsed());
        outputs
    }

    fn rows(&self, call: &Call) -> Option<usize> {
        divide::rows(call, &[&XGBOOST_FEATURES])
    }

    fn divide(&self, call: &Call, rows: usize) -> Option<Vec<Call>> {
        // The message about an infinite weight has the number of its row in the whole call.
        let weights = call.input(XGBOOST_FEATURES.weights).ok();
        let is_infinite = |weights: Cow<'_, [f32]>| weights.iter().any(|it| it.is_infinite());
        if weights.is_some_and(|weights| floats(weights).map_or(true, is_infinite)) {
            return None;
        }
        divide::parts(call, &[&XGBOOST_FEATURES], rows)
    }

    fn contributions(&self, signature: &str) -> Result<ContributionSize, RunError> {
        let by_id = signature == SPARSE;
        let columns = if by_id { Columns::Used } else { Columns::All };
        let explainer = self.explainer(&self.iterations, columns)?;
        Ok(ContributionSize { margins: self.trees.groups(), columns: explainer.width(), by_id })
    }

    fn explain(&self, call: Call, proceed: Proceed<'_>) -> Result<Explanation, RunError> {
        let values = self.input(&call)?;
        let (rows, iterations) = (self.rows_of(&values), self.iterations_of(&values));
        let (columns, by_id) = match &values {
            Values::Dense(_) | Values::Doubles(_) => (Columns::All, false),
            Values::Sparse(..) => (Columns::Used, true),
        };
        let explainer = self.explainer(&iterations, columns)?;
        let contributions = contributions(&explainer, rows, proceed)?;
        Ok(Explanation {
            values: self.contributions_tensor(explainer.width(), &contributions),
            columns: by_id.then(|| explainer.used()),
        })
    }

    fn remark(&self) -> Option<String> {
        self.trees.header().remark().map(str::to_owned)
    }

    fn memory(&self) -> usize {
        self.trees.memory()
    }
}

/// The contributions of an explainer's columns to the margins of rows.
///
/// # Errors
/// DEADLINE.
fn contributions(
    explainer: &trees::Explainer<'_>,
    rows: AnyRows<'_>,
    proceed: Proceed<'_>,
) -> Result<Vec<f32>, RunError> {
    let mut contributions = vec![0.0; rows.len() * explainer.columns()];
    match explainer.explain(rows, &mut contributions, proceed) {
        true => Ok(contributions),
        false => Err(RunError::DeadlineExceeded),
    }
}

/// The inputs and outputs of the signature called `signature` of a model of which these iterations
/// count, if there is such a signature; dense rows are float64 if `is_double`.
pub(crate) fn interface(
    header: &trees::Header,
    (iterations, is_double): (&Range<u32>, bool),
    signature: &str,
) -> Option<Interface> {
    let inputs = match signature {
        SIGNATURE => vec![features_spec(header, is_double)],
        // LightGBM and CatBoost take features that a sparse row lacks for zero, and not for missing.
        SPARSE if header.library() == Library::Xgboost => {
            let limit = TensorSpec::new(LIMIT, DType::Int64.into(), Shape::of(&[1]));
            let limit = TensorSpec { optional: true, ..limit };
            XGBOOST_FEATURES.specs(false).into_iter().chain([limit]).collect()
        }
        _ => return None,
    };
    let outputs = OUTPUTS.map(|(name, output)| {
        let dtype = if output == Output::Leaf { DType::Int32 } else { DType::Float32 };
        output_spec(name, dtype, width(header, iterations, output))
    });
    Some(Interface::new(inputs, outputs.into()))
}

/// Columns of an output of which these iterations count.
fn width(header: &trees::Header, iterations: &Range<u32>, output: Output) -> usize {
    header.columns(&Options { output, iterations: Some(iterations.clone()) })
}

/// The input of features, which are float64 if `is_double`.
pub(crate) fn features_spec(header: &trees::Header, is_double: bool) -> TensorSpec {
    let columns = header.feature_names().iter().map(|name| Arc::from(name.as_str()));
    let shape = Shape::of(&[-1, size(header.features())]);
    let dtype = if is_double { DType::Float64 } else { DType::Float32 };
    let categories = header
        .categories()
        .iter()
        .map(|(column, words)| Categories { column: *column, words: words.clone() });
    TensorSpec {
        columns: columns.collect(),
        has_no_blanks: header.library() == Library::Lightgbm,
        categories: categories.collect(),
        ..TensorSpec::new(FEATURES, dtype.into(), shape)
    }
}

/// An output of `width` columns.
pub(crate) fn output_spec(name: &str, dtype: DType, width: usize) -> TensorSpec {
    let sizes = [&[-1][..], &sizes(0, width)[1..]].concat();
    TensorSpec::new(name, dtype.into(), Shape::of(&sizes))
}

/// The error of a call that wants an output that there is not.
pub(crate) fn no_output(name: &str) -> RunError {
    malformed(format!("the model has no output {name}"))
}

/// The sizes of an output: one number for each row, or several.
pub(crate) fn sizes(rows: usize, width: usize) -> Vec<i64> {
    match width {
        1 => vec![size(rows)],
        _ => vec![size(rows), size(width)],
    }
}

pub(crate) fn size(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
