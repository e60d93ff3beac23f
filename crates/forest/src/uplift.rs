//! Uplift models: the prediction for a row, that for its control, and the difference.
//!
//! The control of an S-learner's row is the same row with other values in some columns, scored by
//! the same model. A T-learner has a model for each arm: the control of a row is the same row,
//! scored by the model of the control's arm. (Künzel et al., Metalearners for estimating
//! heterogeneous treatment effects using machine learning, PNAS 2019.)

mod arms;
mod control;
mod distinct;

use std::{borrow::Cow, path::Path, sync::Arc};

use outrigger_core::{ContributionSize, DType, Explanation, Failure, Interface, Tensor, Uplift};
use outrigger_run::{
    Call, RunError,
    local::{self, Proceed, tensor},
};
use outrigger_trees::{self as trees, Output};

use self::{arms::Arms, control::Control};
use crate::{
    Model, Scoring,
    cell::Cell,
    divide,
    model::{self, SIGNATURE, no_output, output_spec, sizes},
};

/// The start of messages about the settings, which are in metadata.json.
const KEY: &str = "uplift";

/// The inputs and outputs of an uplift model whose main file has this description.
///
/// # Errors
/// IMAGE_INVALID if the settings do not fit the model.
pub(crate) fn interface(
    uplift: &Uplift,
    header: &trees::Header,
    is_double: bool,
) -> Result<Interface, Failure> {
    let mut inputs = vec![model::features_spec(header, is_double)];
    match uplift {
        Uplift::Control(values) => drop(Control::<f64>::new(values, header)?),
        Uplift::Arms(names) => {
            arms::check(names)?;
            inputs.push(arms::spec());
        }
    }
    let outputs = OUTPUTS
        .iter()
        .map(|(name, output, _)| output_spec(name, DType::Float32, header.width(*output)));
    Ok(Interface::new(inputs, outputs.collect()))
}

/// Makes an uplift model of `model`, whose directory is `directory`. Blocks.
///
/// # Errors
/// IMAGE_INVALID if the settings do not fit the model, or a file is missing or not valid.
pub(crate) fn load(
    uplift: &Uplift,
    model: Model,
    directory: &Path,
    scoring: &Scoring,
) -> Result<Arc<dyn local::Model>, Failure> {
    let interface = interface(uplift, model.header(), model.is_double)?;
    match model.compares_doubles() {
        true => load_of::<f64>(uplift, (model, interface), directory, scoring),
        false => load_of::<f32>(uplift, (model, interface), directory, scoring),
    }
}

/// Makes an uplift model whose rows have values of the type `T`.
fn load_of<T: Cell>(
    uplift: &Uplift,
    (model, interface): (Model, Interface),
    directory: &Path,
    scoring: &Scoring,
) -> Result<Arc<dyn local::Model>, Failure> {
    Ok(match uplift {
        Uplift::Control(values) => {
            let learner = Control::<T>::new(values, model.header())?.of(model);
            Arc::new(Effects { learner, interface })
        }
        Uplift::Arms(names) => {
            let learner = Arms::<T>::load(model, names, directory, scoring)?;
            Arc::new(Effects { learner, interface })
        }
    })
}

/// A part of the comparison of rows with their controls.
#[derive(Debug, Clone, Copy)]
enum Part {
    Row,
    Control,
    /// The prediction for the row minus that for its control.
    Difference,
}

/// The outputs by name: the prediction that they are of, and the part of the comparison.
const OUTPUTS: [(&str, Output, Part); 6] = [
    ("value", Output::Value, Part::Row),
    ("value_control", Output::Value, Part::Control),
    ("value_uplift", Output::Value, Part::Difference),
    ("margin", Output::Margin, Part::Row),
    ("margin_control", Output::Margin, Part::Control),
    ("margin_uplift", Output::Margin, Part::Difference),
];

/// Predictions for rows and for their controls, with an element for each row and column.
struct Comparison {
    rows: Vec<f32>,
    controls: Vec<f32>,
}

impl Comparison {
    fn part(&self, part: Part) -> Cow<'_, [f32]> {
        let pairs = self.rows.iter().zip(&self.controls);
        match part {
            Part::Row => Cow::Borrowed(&self.rows),
            Part::Control => Cow::Borrowed(&self.controls),
            Part::Difference => pairs.map(|(row, control)| row - control).collect(),
        }
    }

    /// The differences, in the memory of the predictions for the rows.
    fn into_differences(mut self) -> Vec<f32> {
        self.rows.iter_mut().zip(&self.controls).for_each(|(row, control)| *row -= control);
        self.rows
    }
}

/// A way to predict with the treatment and without it.
trait Learner: Send + Sync + 'static {
    /// Compares the rows of a call with their controls, for each of `outputs`.
    ///
    /// # Errors
    /// The call's inputs are not those of the model.
    fn compare(&self, call: &Call, outputs: &[Output]) -> Result<Vec<Comparison>, RunError>;

    /// See [`Run::contributions`](outrigger_run::Run::contributions).
    ///
    /// # Errors
    /// CONTRIBUTIONS_UNSUPPORTED.
    fn contributions(&self) -> Result<ContributionSize, RunError>;

    /// The contributions to the differences between the margins of the rows of a call and those of
    /// their controls.
    ///
    /// # Errors
    /// Those of [`local::Model::explain`].
    fn explain(&self, call: &Call, proceed: Proceed<'_>) -> Result<Explanation, RunError>;

    /// Columns of an output.
    fn width(&self, output: Output) -> usize;

    /// Bytes held.
    fn memory(&self) -> usize;
}

/// An uplift model.
struct Effects<L> {
    learner: L,
    interface: Interface,
}

impl<L: Learner> local::Model for Effects<L> {
    fn interface(&self, signature: &str) -> Option<Interface> {
        (signature == SIGNATURE).then(|| self.interface.clone())
    }

    fn run(&self, call: Call) -> Result<Vec<Tensor>, RunError> {
        let wanted = wanted(&call)?;
        let mut outputs: Vec<Output> = Vec::new();
        for (_, output, _) in &wanted {
            if !outputs.contains(output) {
                outputs.push(*output);
            }
        }
        let comparisons = self.learner.compare(&call, &outputs)?;
        let tensors = wanted.into_iter().filter_map(|(name, output, part)| {
            let at = outputs.iter().position(|each| *each == output)?;
            let (values, width) = (comparisons[at].part(part), self.learner.width(output));
            Some(tensor(name, sizes(values.len() / width, width), &values))
        });
        Ok(tensors.collect())
    }

    fn rows(&self, call: &Call) -> Option<usize> {
        divide::rows(call, &[])
    }

    fn divide(&self, call: &Call, rows: usize) -> Option<Vec<Call>> {
        divide::parts(call, &[], rows)
    }

    fn contributions(&self, _: &str) -> Result<ContributionSize, RunError> {
        self.learner.contributions()
    }

    fn explain(&self, call: Call, proceed: Proceed<'_>) -> Result<Explanation, RunError> {
        self.learner.explain(&call, proceed)
    }

    fn memory(&self) -> usize {
        self.learner.memory()
    }
}

/// The outputs that the call wants, in its order.
fn wanted(call: &Call) -> Result<Vec<(Arc<str>, Output, Part)>, RunError> {
    if call.outputs.is_empty() {
        let all = OUTPUTS.iter().map(|(name, output, part)| (Arc::from(*name), *output, *part));
        return Ok(all.collect());
    }
    let find = |name: &Arc<str>| {
        let found = OUTPUTS.iter().find(|(known, ..)| *known == &**name);
        let (_, output, part) = found.ok_or_else(|| no_output(name))?;
        Ok((Arc::clone(name), *output, *part))
    };
    call.outputs.iter().map(find).collect()
}

#[cfg(test)]
mod tests;
