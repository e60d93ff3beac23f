//! The lines with the linear models of a tree's leaves.

use super::Lines;
use crate::{
    Error,
    budget::Budget,
    error::invalid,
    linear::{LeafModel, Linear},
    tree::Tree,
};

/// The lines of one tree. Their memory is used again for the next tree.
#[derive(Debug, Default)]
pub(super) struct Models {
    is_linear: Option<bool>,
    constants: Vec<f64>,
    /// The number of features of each leaf's model.
    counts: Vec<u32>,
    /// The end of each leaf's model in `features` and `coefficients`.
    ends: Vec<usize>,
    features: Vec<u32>,
    coefficients: Vec<f64>,
}

impl Models {
    /// Empties the arrays.
    pub(super) fn clear(&mut self) {
        let Self { is_linear, constants, counts, ends, features, coefficients } = self;
        *is_linear = None;
        constants.clear();
        counts.clear();
        ends.clear();
        features.clear();
        coefficients.clear();
    }

    /// Reads the value of a key. All keys but those of linear models are skipped.
    pub(super) fn read(
        &mut self,
        key: &str,
        lines: &mut Lines<'_>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        match key {
            "is_linear" => {
                self.is_linear = match lines.number::<u32>(key)? {
                    0 => Some(false),
                    1 => Some(true),
                    other => return Err(invalid(format!("is_linear is {other}, not 0 or 1"))),
                }
            }
            "leaf_const" => lines.numbers(&mut self.constants, budget)?,
            "num_features" => lines.numbers(&mut self.counts, budget)?,
            "leaf_features" => lines.numbers(&mut self.features, budget)?,
            "leaf_coeff" => lines.numbers(&mut self.coefficients, budget)?,
            _ => lines.skip()?,
        }
        Ok(())
    }

    /// Checks the lines of a tree, and puts the constants of models without features into `values`,
    /// which are those of the leaves.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is a model for each leaf, and [`Error::Memory`].
    pub(super) fn complete(
        &mut self,
        values: &mut [f64],
        budget: &mut Budget,
    ) -> Result<(), Error> {
        match self.is_linear {
            Some(true) => {}
            None if !self.constants.is_empty() => {
                return Err(invalid("a tree with leaf_const has no is_linear"));
            }
            _ => return Ok(()),
        }
        let leaves = values.len();
        budget.reserve(&mut self.ends, self.counts.len())?;
        let mut end = 0_usize;
        for count in &self.counts {
            end = end.saturating_add(*count as usize);
            self.ends.push(end);
        }
        let lengths = [
            ("leaf_const", self.constants.len(), leaves),
            ("num_features", self.counts.len(), leaves),
            ("leaf_features", self.features.len(), end),
            ("leaf_coeff", self.coefficients.len(), end),
        ];
        if let Some((name, length, expected)) =
            lengths.into_iter().find(|(_, length, expected)| length != expected)
        {
            return Err(invalid(format!(
                "{name} has {length} elements for {leaves} leaves with linear models, not \
                 {expected}"
            )));
        }
        for ((value, constant), count) in values.iter_mut().zip(&self.constants).zip(&self.counts) {
            if *count == 0 {
                *value = *constant;
            }
        }
        Ok(())
    }

    /// Adds the models of the leaves of `tree`, which these lines describe, to those of the trees
    /// before it, which have `before` nodes.
    ///
    /// # Errors
    /// As [`Linear::add`].
    pub(super) fn add_to(
        &self,
        linear: &mut Linear,
        before: usize,
        tree: &Tree,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        if self.is_linear != Some(true) || self.features.is_empty() {
            return Ok(());
        }
        linear.add(before, tree, |leaf| self.of(leaf as usize), budget)
    }

    /// The model of a leaf; None if it has no features.
    fn of(&self, leaf: usize) -> Option<LeafModel<'_>> {
        let (end, count) = (self.ends[leaf], self.counts[leaf] as usize);
        let range = end - count..end;
        let (features, coefficients) = (&self.features[range.clone()], &self.coefficients[range]);
        let constant = self.constants[leaf];
        (count > 0).then_some(LeafModel { constant, features, coefficients })
    }
}
