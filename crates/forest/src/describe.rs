//! The metadata.json of models that come without one, as the files of XGBoost Serving do: their
//! features are sparse ids, of a treatment for each row.

use std::path::Path;

use outrigger_core::{Describer, Failure};
use outrigger_trees::{Library, Limits, Options, Output};
use serde_json::{Value, json};

use crate::{
    Scoring, files, gbdt_fm,
    libraries::{self, XGBOOST},
    model::SPARSE,
    sparse::{FM_FEATURES, SparseInput, XGBOOST_FEATURES},
};

/// XGBoost Serving's name of the file with the trees.
pub(crate) const MODEL: &str = "deploy.model";

/// The most ids that a row has in an input.
const MAX_IDS: usize = 2048;

/// The description of trees alone.
pub(crate) const TREES: Describer = Describer { file: MODEL, describe: trees };

/// The description of trees with a factorisation machine.
pub(crate) const MACHINE: Describer = Describer { file: MODEL, describe: machine };

/// Describes the trees in `directory`. Their outputs are those of XGBoost Serving's `Predict`.
/// Blocks.
fn trees(directory: &Path) -> Result<String, Failure> {
    let limits = Limits { memory: Describer::MEMORY, ..Limits::default() };
    let (scoring, header) = (Scoring::read(directory)?, files::header(directory, &limits)?);
    libraries::check(header.library(), Library::Xgboost)?;
    let iterations = Some(scoring.iterations.of(&header)?);
    let outputs = [("value", Output::Value), ("margin", Output::Margin), ("leaf", Output::Leaf)];
    let outputs = outputs.into_iter().filter_map(|(name, output)| {
        let width = header.columns(&Options { output, iterations: iterations.clone() });
        (width > 0).then(|| output_of(name, width))
    });
    let inputs = vec![input(&XGBOOST_FEATURES)];
    Ok(metadata(XGBOOST.name, Some(SPARSE), inputs, outputs.collect()))
}

/// Describes the trees and the machine in `directory`. The output is that of XGBoost Serving's
/// `PredictAlphafm` and `PredictAlphafmSoftmax`. Blocks.
fn machine(directory: &Path) -> Result<String, Failure> {
    let head = gbdt_fm::head(directory)?;
    let framework = gbdt_fm::name(head.kind());
    let inputs = [&XGBOOST_FEATURES, &FM_FEATURES].map(input).into();
    Ok(metadata(framework, None, inputs, vec![output_of("score", head.classes())]))
}

fn metadata(
    framework: &str,
    signature: Option<&str>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
) -> String {
    let mut metadata = json!({
        "schema": "outrigger.dev/model/v1",
        "framework": framework,
        "inputs": inputs,
        "outputs": outputs,
    });
    if let Some(signature) = signature {
        metadata["signature"] = signature.into();
    }
    metadata.to_string()
}

/// An input with one feature, which has its name. A row without the feature has no ids.
fn input(input: &SparseInput) -> Value {
    // A weight of the trees that is NaN is missing, as in XGBoost Serving.
    let allow_non_finite = input.ids == XGBOOST_FEATURES.ids;
    let feature = json!({
        "name": input.ids, "entity": "treatment", "max": MAX_IDS, "default": [],
        "allow_non_finite": allow_non_finite,
    });
    json!({
        "tensor": input.ids, "weights": input.weights, "lengths": input.lengths,
        "entity": "joined", "dtype": "int64", "features": [feature],
    })
}

/// An output, whose first column is the score.
fn output_of(name: &str, width: usize) -> Value {
    let mut output = json!({"tensor": name, "name": name, "kind": "per_treatment"});
    if width > 1 {
        output["width"] = width.into();
        output["score"] = json!({"column": 0});
    }
    output
}

#[cfg(test)]
mod tests;
