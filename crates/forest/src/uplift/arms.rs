//! T-learners: a model for each arm, and one for the control.

use std::{borrow::Cow, collections::HashSet, marker::PhantomData, path::Path, slice};

use outrigger_core::{Content, ContributionSize, DType, Explanation, Failure, Shape, TensorSpec};
use outrigger_run::{
    Call, RunError,
    local::{Model as _, Proceed, malformed},
};
use outrigger_trees::Output;

use super::{
    Comparison, KEY, Learner,
    distinct::{Distinct, gathered},
};
use crate::{
    Model, Scoring,
    cell::Cell,
    files, invalid,
    libraries::{self, ARMS},
    model::SIGNATURE,
};

/// The input with the number of each row's arm.
const ARM: &str = "arm";

/// The name of the control's arm. Its model is the main file of the package.
const CONTROL: &str = "control";

/// The name of the control's file, before its ending. Files of arms have the same endings.
const MODEL: &str = "model.";

/// Computes an array of numbers for rows by a model; the number says which one.
type Compute<'a, T> = &'a dyn Fn(&Model, usize, &[T]) -> Result<Vec<f32>, RunError>;

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
pub(super) struct Arms<T> {
    control: Model,
    /// The models by the arms' numbers; None for that of the control.
    arms: Vec<Option<Model>>,
    /// The type of the rows' values.
    cells: PhantomData<T>,
}

impl<T: Cell> Arms<T> {
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
        Ok(Self { control, arms, cells: PhantomData })
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

    /// Compares the rows of a call with their controls by arrays of numbers, of which `widths` has
    /// the length for a row. `compute` returns the array at this place for rows, by a model.
    fn compare_by(
        &self,
        call: &Call,
        widths: &[usize],
        compute: Compute<'_, T>,
    ) -> Result<Vec<Comparison>, RunError> {
        let rows = self.control.values::<T>(call)?;
        let width = self.control.header().features();
        // Rows of one user that differ only in the arm are one row for each model.
        let distinct = Distinct::new(&rows, width, slice::from_ref(&(0..width)));
        let numbers = self.numbers(call, distinct.of_rows.len())?;
        let rows = distinct.rows(&rows, width);
        let of_control = widths.iter().enumerate().map(|(at, width)| {
            let controls = distinct.spread(&compute(&self.control, at, &rows)?, *width);
            Ok(Comparison { rows: controls.clone(), controls })
        });
        let mut comparisons = of_control.collect::<Result<Vec<_>, RunError>>()?;
        let mut order: Vec<_> = (0..numbers.len()).collect();
        order.sort_by_key(|row| numbers[*row]);
        for of_arm in order.chunk_by(|a, b| numbers[*a] == numbers[*b]) {
            let Some(model) = &self.arms[numbers[of_arm[0]]] else { continue };
            let results = comparisons.iter_mut().zip(widths.iter().copied());
            self.compare_arm((model, of_arm), (&rows, &distinct), results, compute)?;
        }
        Ok(comparisons)
    }

    /// Puts the numbers for the rows of one arm into their comparisons, each with its width.
    /// `of_arm` has the numbers of the rows, ascending; `rows` has the distinct rows.
    fn compare_arm<'a>(
        &self,
        (model, of_arm): (&Model, &[usize]),
        (rows, distinct): (&[T], &Distinct),
        comparisons: impl Iterator<Item = (&'a mut Comparison, usize)>,
        compute: Compute<'_, T>,
    ) -> Result<(), RunError> {
        let mut needed: Vec<_> = of_arm.iter().map(|row| distinct.of_rows[*row]).collect();
        needed.dedup();
        let rows = match needed.len() == distinct.kept.len() {
            true => Cow::Borrowed(rows),
            false => Cow::Owned(gathered(rows, self.control.header().features(), &needed)),
        };
        for (at, (comparison, width)) in comparisons.enumerate() {
            let numbers = compute(model, at, &rows)?;
            for row in of_arm {
                let at = needed.partition_point(|number| *number < distinct.of_rows[*row]);
                comparison.rows[row * width..][..width]
                    .copy_from_slice(&numbers[at * width..][..width]);
            }
        }
        Ok(())
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
    let trees = files::model_at(&directory.join(file), &shown, control.is_double)?;
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

impl<T: Cell> Learner for Arms<T> {
    fn compare(&self, call: &Call, outputs: &[Output]) -> Result<Vec<Comparison>, RunError> {
        let widths: Vec<_> = outputs.iter().map(|output| self.width(*output)).collect();
        self.compare_by(call, &widths, &|model, at, rows| Ok(model.scores(outputs[at], rows)))
    }

    fn contributions(&self) -> Result<ContributionSize, RunError> {
        for model in self.arms.iter().flatten() {
            model.contributions(SIGNATURE)?;
        }
        let of_model = self.control.contributions(SIGNATURE)?;
        Ok(ContributionSize { columns: of_model.columns + 1, ..of_model })
    }

    /// The arm is a column of its own, whose contribution is 0: no model sees it.
    fn explain(&self, call: &Call, proceed: Proceed<'_>) -> Result<Explanation, RunError> {
        let widths = [self.control.contributions(SIGNATURE)?.of_row()];
        let compute = |model: &Model, _, rows: &[T]| model.contributions_to(rows, proceed);
        let mut comparisons = self.compare_by(call, &widths, &compute)?;
        let differences = comparisons.remove(0).into_differences();
        let columns = self.control.header().features();
        let arm_is_first = call.inputs.first().is_some_and(|input| &*input.name == ARM);
        let before = if arm_is_first { 0 } else { columns };
        let margins = differences.len() / (columns + 1);
        let mut with_arm = Vec::with_capacity(differences.len() + margins);
        for of_margin in differences.chunks_exact(columns + 1) {
            with_arm.extend_from_slice(&of_margin[..before]);
            with_arm.push(0.0);
            with_arm.extend_from_slice(&of_margin[before..]);
        }
        drop(differences);
        let values = self.control.contributions_tensor(columns + 1, &with_arm);
        Ok(Explanation { values, columns: None })
    }

    fn width(&self, output: Output) -> usize {
        self.control.width(output)
    }

    fn memory(&self) -> usize {
        self.control.memory() + self.arms.iter().flatten().map(Model::memory).sum::<usize>()
    }
}
