//! The loss of a model, which decides the value of a margin, and its classes.

use super::set;
use crate::{
    Error,
    budget::Budget,
    double::Transform,
    error::invalid,
    read::{json::Json, pull::Document as _, source::Source},
};

/// Losses whose values are their margins.
const PLAIN: [&str; 31] = [
    "Combination",
    "Cox",
    "Expectile",
    "GroupQuantile",
    "Huber",
    "LambdaMart",
    "LogCosh",
    "LogLinQuantile",
    "Lq",
    "MAE",
    "MAPE",
    "MultiQuantile",
    "MultiRMSE",
    "MultiRMSEWithMissingValues",
    "PairLogit",
    "PairLogitPairwise",
    "PythonUserDefinedMultiTarget",
    "PythonUserDefinedPerObject",
    "Quantile",
    "QueryCrossEntropy",
    "QueryRMSE",
    "QuerySoftMax",
    "RMSE",
    "RMSPE",
    "StochasticFilter",
    "StochasticRank",
    "SurvivalAft",
    "UserPerObjMetric",
    "UserQuerywiseMetric",
    "YetiRank",
    "YetiRankPairwise",
];

/// Parts of `model_info`.
#[derive(Default)]
pub(super) struct Loss {
    /// The loss's name; empty if it has not been read.
    name: String,
    /// The number of each output's class; empty if the model has no classes.
    labels: Vec<u32>,
    /// Classes by their number and by their names, of which one may be 0.
    classes: [usize; 2],
}

impl Loss {
    /// Reads `model_info`.
    pub(super) fn read(&mut self, json: &mut Json<'_>, budget: &mut Budget) -> Result<(), Error> {
        json.object(&mut |json, key| match key {
            "params" => json.object(&mut |json, key| match key {
                "loss_function" => self.function(json),
                _ => json.skip(),
            }),
            // A sum of models has the loss as a text.
            "loss_function" => {
                let text = json.string()?;
                let mut bytes = text.as_bytes();
                let source = Source::new(&mut bytes, text.len() as u64, budget)?;
                self.function(&mut Json::new(source))
            }
            "class_params" => json.object(&mut |json, key| match key {
                "class_to_label" => json.numbers(&mut self.labels, budget),
                "classes_count" => {
                    set(&mut self.classes[0], json.number::<u32>().map(|it| it as usize))
                }
                "class_names" => json.array(&mut |json| {
                    self.classes[1] += 1;
                    json.skip()
                }),
                _ => json.skip(),
            }),
            _ => json.skip(),
        })
    }

    fn function(&mut self, json: &mut Json<'_>) -> Result<(), Error> {
        json.object_of("loss_function", &["type"], &mut |json, key| match key {
            "type" => set(&mut self.name, json.string()),
            _ => json.skip(),
        })
    }

    /// The transformation that the estimators of the library apply, for a model of `outputs` outputs.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no loss; [`Error::Unsupported`] if the loss is not known, or a
    /// class has no output.
    pub(super) fn transform(&self, outputs: usize) -> Result<Transform, Error> {
        let name = &*self.name;
        let transform = match name {
            "" => return Err(invalid("model_info has no params with a loss_function")),
            "Logloss" | "CrossEntropy" | "Focal" | "MultiLogloss" | "MultiCrossEntropy" => {
                return Ok(Transform::Sigmoid(1.0));
            }
            "Poisson" | "Tweedie" => return Ok(Transform::Exponential),
            "RMSEWithUncertainty" => return Ok(Transform::Variance),
            "MultiClassOneVsAll" => Transform::Sigmoid(1.0),
            "MultiClass" => Transform::Softmax,
            // A classifier of a loss of its own has probabilities that the file does not tell.
            _ if PLAIN.contains(&name) && self.labels.is_empty() => return Ok(Transform::Identity),
            _ => return Err(Error::Unsupported(format!("its loss is {name}, which is not known"))),
        };
        let classes = self.classes.into_iter().max().filter(|count| *count > 0).unwrap_or(outputs);
        let has_all = self.labels.iter().copied().eq(0..outputs as u32);
        if classes != outputs || !self.labels.is_empty() && !has_all {
            let labels = &self.labels;
            return Err(Error::Unsupported(format!(
                "its loss is {name} with {classes} classes, of which only {labels:?} had rows in the \
                 training: the others have no column"
            )));
        }
        Ok(transform)
    }
}
