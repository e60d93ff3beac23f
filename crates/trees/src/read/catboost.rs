//! The JSON format of CatBoost, for models of float features.
//!
//! The keys are those of `catboost/libs/model/model_export/json_model_helpers.cpp` in CatBoost's
//! sources.

mod loss;
mod nested;

use super::{
    json::Json,
    model::{Content, Library},
    pull::Document as _,
};
use crate::{
    Error,
    budget::Budget,
    double::{Double, Transform},
    error::invalid,
    oblivious::{Input, Oblivious, Split},
    tree::Node,
};
use loss::Loss;
use nested::Nested;

/// The keys of a model, one of which is the first in a file.
pub(crate) const KEYS: [&str; 6] =
    ["ctr_data", "features_info", "model_info", "oblivious_trees", "scale_and_bias", "trees"];

/// Features of a kind that is not supported which an error names.
const NAMED: usize = 5;

/// The error of a file in CatBoost's binary format.
pub(crate) fn binary() -> Error {
    Error::Unsupported(
        "it is in CatBoost's binary format (.cbm); write it as JSON: \
         model.save_model(\"model.json\", format=\"json\")"
            .to_owned(),
    )
}

/// Reads a model.
pub(crate) fn read(json: &mut Json<'_>, budget: &mut Budget) -> Result<Content, Error> {
    let mut reading = Reading {
        trees: Oblivious::new(budget)?,
        nested: Nested::default(),
        inputs: Vec::new(),
        names: Vec::new(),
        double: Double::plain(Transform::Identity),
        loss: Loss::default(),
        has_trees: false,
        first: None,
        budget,
    };
    let keys = ["features_info", "model_info", "scale_and_bias"];
    json.object_of("it", &keys, &mut |json, key| match key {
        "features_info" => reading.features(json),
        "model_info" => reading.loss.read(json, reading.budget),
        "oblivious_trees" => reading.trees(json),
        "trees" => reading.nested(json),
        "scale_and_bias" => reading.scale_and_bias(json),
        _ => json.skip(),
    })?;
    reading.finish()
}

struct Reading<'a> {
    /// The trees, if they are symmetric.
    trees: Oblivious,
    /// The trees, if they are not.
    nested: Nested,
    inputs: Vec<Input>,
    /// The names of the inputs; empty for those that have none.
    names: Vec<String>,
    double: Double,
    loss: Loss,
    has_trees: bool,
    /// Splits of the first tree, and values of its leaves.
    first: Option<(usize, usize)>,
    budget: &'a mut Budget,
}

impl Reading<'_> {
    fn features(&mut self, json: &mut Json<'_>) -> Result<(), Error> {
        json.object_of("features_info", &["float_features"], &mut |json, key| match key {
            "float_features" => json.array(&mut |json| self.feature(json)),
            "categorical_features" | "text_features" | "embedding_features" => {
                refuse(json, key.trim_end_matches("_features"))
            }
            _ => json.skip(),
        })
    }

    /// Reads a float feature.
    fn feature(&mut self, json: &mut Json<'_>) -> Result<(), Error> {
        let position = self.inputs.len();
        let mut input = Input { column: position as u32, missing: f32::NAN };
        let mut name = String::new();
        let keys = ["feature_index", "flat_feature_index", "nan_value_treatment"];
        json.object_of("a float feature", &keys, &mut |json, key| match key {
            "flat_feature_index" => set(&mut input.column, json.number()),
            "feature_index" if json.number::<u32>()? as usize != position => {
                Err(invalid(format!("float feature {position} has another feature_index")))
            }
            "feature_index" => Ok(()),
            "feature_id" => set(&mut name, json.string()),
            "nan_value_treatment" => set(&mut input.missing, missing(&json.string()?)),
            _ => json.skip(),
        })?;
        if input.column >= Node::FEATURES {
            return Err(invalid(format!("feature {} is out of range", input.column)));
        }
        self.budget.push_text(&mut self.names, name)?;
        self.budget.push(&mut self.inputs, input)
    }

    fn trees(&mut self, json: &mut Json<'_>) -> Result<(), Error> {
        self.has_trees = true;
        let (mut splits, mut values) = (Vec::new(), Vec::new());
        json.array(&mut |json| {
            splits.clear();
            values.clear();
            json.object_of("a tree", &["splits", "leaf_values"], &mut |json, key| match key {
                "splits" => json.array(&mut |json| {
                    let split = split(json)?;
                    self.budget.push(&mut splits, split)
                }),
                "leaf_values" => json.numbers(&mut values, self.budget),
                _ => json.skip(),
            })?;
            self.first.get_or_insert((splits.len(), values.len()));
            self.trees.push(&splits, &values, self.budget)
        })?;
        self.budget.release::<Split>(splits.capacity());
        self.budget.release::<f64>(values.capacity());
        Ok(())
    }

    /// Reads trees that are not symmetric.
    fn nested(&mut self, json: &mut Json<'_>) -> Result<(), Error> {
        self.has_trees = true;
        json.array(&mut |json| self.nested.read(json, &self.inputs, self.budget))
    }

    /// Reads the factor, and the bias: that of each output, or, in old files, that of all.
    fn scale_and_bias(&mut self, json: &mut Json<'_>) -> Result<(), Error> {
        let mut position = 0;
        json.array(&mut |json| {
            position += 1;
            match position {
                1 => set(&mut self.double.scale, json.number()),
                2 if json.next()? == b'[' => json.numbers(&mut self.double.bias, self.budget),
                2 => {
                    let bias = json.number()?;
                    self.budget.push(&mut self.double.bias, bias)
                }
                _ => Err(invalid("scale_and_bias has more than two elements")),
            }
        })?;
        if position == 2 { Ok(()) } else { Err(invalid("scale_and_bias has no bias")) }
    }

    /// Values of each leaf.
    fn outputs(&self) -> Result<usize, Error> {
        let outputs = match (self.first, self.nested.width()) {
            (Some(_), Some(_)) => return Err(invalid("only some of its trees are symmetric")),
            (None, Some(width)) => width,
            (None, None) => self.double.bias.len().max(1),
            (Some((depth, values)), None) => {
                values.checked_shr(u32::try_from(depth).unwrap_or(u32::MAX)).unwrap_or(0)
            }
        };
        match outputs {
            0 => Err(invalid("its leaves have no values")),
            outputs => Ok(outputs),
        }
    }

    fn finish(mut self) -> Result<Content, Error> {
        if !self.has_trees {
            return Err(invalid("it has no oblivious_trees, and no trees"));
        }
        let outputs = self.outputs()?;
        self.double.transform = self.loss.transform(outputs)?;
        let bias = &mut self.double.bias;
        if bias.len() == 1 {
            self.budget.reserve(bias, outputs - 1)?;
            bias.resize(outputs, bias[0]);
        }
        if ![0, outputs].contains(&bias.len()) {
            let count = bias.len();
            return Err(invalid(format!("it has a bias for {count} outputs, and {outputs}")));
        }
        let features = self.inputs.iter().map(|input| input.column as usize + 1).max().unwrap_or(0);
        let named = |(at, name): (usize, &String)| !name.is_empty() && *name != at.to_string();
        if features != self.names.len() || !self.names.iter().enumerate().any(named) {
            self.names = Vec::new();
        }
        let content = Content {
            library: Library::Catboost,
            base: vec![0.0],
            features,
            names: self.names,
            classes: outputs,
            double: Some(self.double),
            ..Content::default()
        };
        if self.nested.width().is_some() {
            let trees = self.nested.finish(self.budget);
            let (count, groups) = (trees.len(), self.budget.filled(0, trees.len())?);
            return Ok(Content { trees, groups, count, ..content });
        }
        self.trees.complete(self.inputs, outputs)?;
        Ok(Content { count: self.trees.len(), oblivious: Some(self.trees), ..content })
    }
}

/// Reads features of a kind that is not supported, and refuses them by their names.
fn refuse(json: &mut Json<'_>, kind: &str) -> Result<(), Error> {
    let (mut names, mut count) = (Vec::new(), 0_u64);
    json.array(&mut |json| {
        let (mut name, mut column) = (String::new(), 0_u32);
        json.object(&mut |json, key| match key {
            "feature_id" => set(&mut name, json.string()),
            "flat_feature_index" => set(&mut column, json.number()),
            _ => json.skip(),
        })?;
        count += 1;
        if names.len() < NAMED {
            names.push(if name.is_empty() { column.to_string() } else { name });
        }
        Ok(())
    })?;
    if count == 0 {
        return Ok(());
    }
    let more = if count > NAMED as u64 { ", …" } else { "" };
    Err(Error::Unsupported(format!(
        "it has {kind} features ({}{more}); only float features are supported: train it with \
         numbers in their place, as target statistics or codes",
        names.join(", ")
    )))
}

/// Reads a split.
fn split(json: &mut Json<'_>) -> Result<Split, Error> {
    let (mut border, mut input) = (None, None);
    json.object(&mut |json, key| match key {
        "border" => {
            border = Some(json.number()?);
            Ok(())
        }
        "float_feature_index" => {
            input = Some(json.number()?);
            Ok(())
        }
        "split_type" => match &*json.string()? {
            "FloatFeature" => Ok(()),
            other => Err(Error::Unsupported(format!("it has a split of the type {other:?}"))),
        },
        _ => json.skip(),
    })?;
    match (border, input) {
        (Some(border), Some(input)) => Ok(Split { border, input }),
        _ => Err(invalid("a split has no border or no float_feature_index")),
    }
}

/// The value that a missing one counts as, by the name of its treatment.
fn missing(treatment: &str) -> Result<f32, Error> {
    match treatment {
        "AsIs" => Ok(f32::NAN),
        "AsFalse" => Ok(f32::NEG_INFINITY),
        "AsTrue" => Ok(f32::INFINITY),
        other => Err(invalid(format!("{other:?} is no treatment of missing values"))),
    }
}

fn set<T>(target: &mut T, value: Result<T, Error>) -> Result<(), Error> {
    *target = value?;
    Ok(())
}
