//! S-learners: one model, for rows and for their controls.

use std::{collections::BTreeMap, ops::Range};

use outrigger_core::{ContributionSize, Explanation, Failure};
use outrigger_run::{
    Call, RunError,
    local::{Model as _, Proceed},
};
use outrigger_trees::{Header, Library, Output};

use super::{Comparison, KEY, Learner, distinct::Distinct};
use crate::{Model, cell::Cell, invalid, model::SIGNATURE};

/// The values of the control.
pub(super) struct Control<T> {
    /// The columns with their values, ascending.
    values: Vec<(usize, T)>,
    /// The other columns.
    others: Vec<Range<usize>>,
}

impl<T: Cell> Control<T> {
    /// The values by the names of columns. Columns without names are called as XGBoost calls them:
    /// `f0`, `f1` and so on.
    ///
    /// # Errors
    /// IMAGE_INVALID if the model has no such columns, or there are no values.
    pub(super) fn new(
        values: &BTreeMap<String, Option<f64>>,
        header: &Header,
    ) -> Result<Self, Failure> {
        let find = |(name, value): (&String, &Option<f64>)| {
            let column = column(name, header);
            let column = column.ok_or_else(|| problem(&format!("the model has no {name:?}")))?;
            Ok((column, T::of(value.unwrap_or(f64::NAN))))
        };
        let mut values = values.iter().map(find).collect::<Result<Vec<_>, Failure>>()?;
        if values.is_empty() {
            return Err(problem("no feature has a value"));
        }
        values.sort_unstable_by_key(|(column, _)| *column);
        let ends = values.iter().map(|(column, _)| *column).chain([header.features()]);
        let starts = values.iter().map(|(column, _)| column + 1);
        let others = [0].into_iter().chain(starts).zip(ends).map(|(start, end)| start..end);
        let others = others.filter(|others| !others.is_empty()).collect();
        Ok(Self { values, others })
    }

    /// The learner with this control.
    pub(super) fn of(mut self, model: Model) -> Single<T> {
        for (_, value) in &mut self.values {
            *value = model.with_missing([*value].as_slice().into())[0];
        }
        Single { model, control: self }
    }
}

/// The column called `name`.
fn column(name: &str, header: &Header) -> Option<usize> {
    if !header.feature_names().is_empty() {
        // LightGBM writes an underscore for each blank.
        let without = if header.library() == Library::Lightgbm { "_" } else { " " };
        let name = name.replace(' ', without);
        return header.feature_names().iter().position(|known| *known == name);
    }
    let column = name.strip_prefix('f')?.parse().ok()?;
    (column < header.features() && name == format!("f{column}")).then_some(column)
}

fn problem(text: &str) -> Failure {
    invalid(format!("metadata.json: {KEY}.control: {text}"))
}

/// An S-learner.
pub(super) struct Single<T> {
    model: Model,
    control: Control<T>,
}

impl<T: Cell> Single<T> {
    /// The rows of a call, and behind them the control of each distinct one. Rows that differ only in
    /// the columns of the control have one control.
    fn with_controls(&self, call: &Call) -> Result<(Vec<T>, Distinct), RunError> {
        let rows = self.model.values::<T>(call)?;
        let width = self.model.header().features();
        let distinct = Distinct::new(&rows, width, &self.control.others);
        let mut all = Vec::with_capacity(rows.len() + width * distinct.kept.len());
        all.extend_from_slice(&rows);
        for row in &distinct.kept {
            let start = all.len();
            all.extend_from_slice(&rows[row * width..][..width]);
            self.control.values.iter().for_each(|(column, value)| all[start + column] = *value);
        }
        Ok((all, distinct))
    }
}

impl<T: Cell> Learner for Single<T> {
    fn compare(&self, call: &Call, outputs: &[Output]) -> Result<Vec<Comparison>, RunError> {
        let (all, distinct) = self.with_controls(call)?;
        let compare = |output: &Output| {
            let width = self.width(*output);
            let mut rows = self.model.scores(*output, &all);
            let controls = rows.split_off(distinct.of_rows.len() * width);
            Comparison { rows, controls: distinct.spread(&controls, width) }
        };
        Ok(outputs.iter().map(compare).collect())
    }

    fn contributions(&self) -> Result<ContributionSize, RunError> {
        self.model.contributions(SIGNATURE)
    }

    fn explain(&self, call: &Call, proceed: Proceed<'_>) -> Result<Explanation, RunError> {
        let (all, distinct) = self.with_controls(call)?;
        let mut rows = self.model.contributions_to(&all, proceed)?;
        let width = self.contributions()?.of_row();
        let controls = rows.split_off(distinct.of_rows.len() * width);
        let controls = distinct.spread(&controls, width);
        let rows = Comparison { rows, controls }.into_differences();
        let values = self.model.contributions_tensor(self.model.header().features(), &rows);
        Ok(Explanation { values, columns: None })
    }

    fn width(&self, output: Output) -> usize {
        self.model.width(output)
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.control.values)
            + size_of_val(&*self.control.others)
            + self.model.memory()
    }
}
