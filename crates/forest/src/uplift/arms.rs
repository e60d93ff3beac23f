//! T-learners: a model for each arm, and one for the control.

use std::{borrow::Cow, collections::HashSet, path::Path, slice};

use outrigger_core::{Content, DType, Failure, Shape, TensorSpec};
use outrigger_run::{
    Call, RunError,
    local::{Model as _, malformed},
};
use outrigger_trees::Output;

use super::{
    Comparison, KEY, Learner,
    distinct::{Distinct, gathered},
};
use crate::{
    Model, Scoring, files, invalid,
    libraries::{self, ARMS},
};

/// The input with the number of each row's arm.
const ARM: &str = "arm";

/// The name of the control's arm. Its model is the main file of the package.
const CONTROL: &str = "control";

/// The name of the control's file, before its ending. Files of arms have the same endings.
const MODEL: &str = "model.";

/// The input with the number of each row's arm.
pub(super) fn spec() -> TensorSpec {
    TensorSpec::new(ARM, DType::Int64.into(), Shape::of(&[-1, 1]))
}

/// Checks the names of arms.
///
/// # Errors
/// IMAGE_INVALID if a name is repeated or is not the name of a file, or only the control has one.
pub(super) fn check(names: &[String]) -> Result<(), Failure> {
    let mut known = HashSet::new();
    for name in names {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
            return Err(problem(&format!("{name:?} cannot be the name of a file")));
        }
        if !known.insert(name) {
            return Err(problem(&format!("{name:?} is there twice")));
        }
    }
    match names.iter().any(|name| name != CONTROL) {
        true => Ok(()),
        false => Err(problem("no arm has a model")),
    }
}

fn problem(text: &str) -> Failure {
    invalid(format!("metadata.json: {KEY}.arms: {text}"))
}

/// A T-learner.
pub(super) struct Arms {
    control: Model,
    /// The models by the arms' numbers; None for that of the control.
    arms: Vec<Option<Model>>,
}

impl Arms {
    /// Loads the models of the arms called `names`; `control` is that of the control. Blocks.
    ///
    /// # Errors
    /// IMAGE_INVALID if a model is missing, is not valid or has other features than the control's.
    pub(super) fn load(
        control: Model,
        names: &[String],
        directory: &Path,
        scoring: &Scoring,
    ) -> Result<Self, Failure> {
        let load = |name: &String| match name.as_str() {
            CONTROL => Ok(None),
            _ => arm(&control, name, &directory.join(ARMS), scoring).map(Some),
        };
        let arms = names.iter().map(load).collect::<Result<_, _>>()?;
        Ok(Self { control, arms })
    }

    /// The number of the arm of each row.
    fn numbers(&self, call: &Call, rows: usize) -> Result<Vec<usize>, RunError> {
        let tensor = call.input(ARM)?;
        let (DType::Int64, Content::Bytes(bytes)) = (tensor.dtype, &tensor.content) else {
            return Err(malformed(format!("{ARM} must be int64")));
        };
        let (numbers, rest) = bytes.as_chunks::<8>();
        if numbers.len() != rows || !rest.is_empty() {
            return Err(malformed(format!("{ARM} must have one number for each of {rows} rows")));
        }
        let known = |number: &[u8; 8]| {
            let number = i64::from_le_bytes(*number);
            let arm = usize::try_from(number).ok().filter(|arm| *arm < self.arms.len());
            let last = self.arms.len() - 1;
            arm.ok_or_else(|| malformed(format!("{ARM} must be 0 to {last}, is {number}")))
        };
        numbers.iter().map(known).collect()
    }

    /// Scores rows with the model of their arm. `of_arm` has their numbers, ascending; `rows` has
    /// the distinct rows.
    fn score(
        &self,
        (model, of_arm): (&Model, &[usize]),
        (rows, distinct): (&[f32], &Distinct),
        outputs: &[Output],
        comparisons: &mut [Comparison],
    ) {
        let mut needed: Vec<_> = of_arm.iter().map(|row| distinct.of_rows[*row]).collect();
        needed.dedup();
        let rows = match needed.len() == distinct.kept.len() {
            true => Cow::Borrowed(rows),
            false => Cow::Owned(gathered(rows, self.control.header().features(), &needed)),
        };
        for (output, comparison) in outputs.iter().zip(comparisons) {
            let (scores, width) = (model.scores(*output, &rows), self.width(*output));
            for row in of_arm {
                let at = needed.partition_point(|number| *number < distinct.of_rows[*row]);
                comparison.rows[row * width..][..width]
                    .copy_from_slice(&scores[at * width..][..width]);
            }
        }
    }
}

/// Loads the model of the arm called `name`, which is of the library of the control's.
fn arm(control: &Model, name: &str, directory: &Path, scoring: &Scoring) -> Result<Model, Failure> {
    let library = control.header().library();
    let layout = libraries::of(library).layout;
    let endings = layout.files.iter().filter_map(|file| file.strip_prefix(MODEL));
    let files: Vec<_> = endings.map(|ending| format!("{name}.{ending}")).collect();
    let held: Vec<_> = files.iter().filter(|file| directory.join(file).is_file()).collect();
    let [file] = held[..] else {
        let within = format!("{}/{ARMS}", layout.directory);
        let found = if held.is_empty() { "none" } else { "several" };
        let files = files.join(" or ");
        return Err(problem(&format!("the arm {name:?} needs {files} in {within}, has {found}")));
    };
    let shown = format!("{ARMS}/{file}");
    let trees = files::model_at(&directory.join(file), &shown)?;
    let model = libraries::check(trees.library(), library)
        .and_then(|()| Model::new(trees, scoring))
        .map_err(|failure| failure.map_message(|message| format!("{shown}: {message}")))?;
    let (of_arm, of_control) = (model.header(), control.header());
    let features = [of_arm, of_control].map(|header| (header.features(), header.feature_names()));
    let outputs = [of_arm, of_control]
        .map(|header| [Output::Value, Output::Margin].map(|output| header.width(output)));
    if features[0] != features[1] || outputs[0] != outputs[1] {
        let text = "its features or outputs are not those of the control's model";
        return Err(invalid(format!("{shown}: {text}")));
    }
    Ok(model)
}

impl Learner for Arms {
    fn compare(&self, call: &Call, outputs: &[Output]) -> Result<Vec<Comparison>, RunError> {
        let rows = self.control.values(call)?;
        let width = self.control.header().features();
        // Rows of one user that differ only in the arm are one row for each model.
        let distinct = Distinct::new(&rows, width, slice::from_ref(&(0..width)));
        let numbers = self.numbers(call, distinct.of_rows.len())?;
        let rows = distinct.rows(&rows, width);
        let mut comparisons: Vec<_> = outputs
            .iter()
            .map(|output| {
                let controls = self.control.scores(*output, &rows);
                let controls = distinct.spread(&controls, self.width(*output));
                Comparison { rows: controls.clone(), controls }
            })
            .collect();
        let mut order: Vec<_> = (0..numbers.len()).collect();
        order.sort_by_key(|row| numbers[*row]);
        for of_arm in order.chunk_by(|a, b| numbers[*a] == numbers[*b]) {
            let Some(model) = &self.arms[numbers[of_arm[0]]] else { continue };
            self.score((model, of_arm), (&rows, &distinct), outputs, &mut comparisons);
        }
        Ok(comparisons)
    }

    fn width(&self, output: Output) -> usize {
        self.control.width(output)
    }

    fn memory(&self) -> usize {
        self.control.memory() + self.arms.iter().flatten().map(Model::memory).sum::<usize>()
    }
}
