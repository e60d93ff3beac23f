//! Leaves with linear models, which LightGBM trains with `linear_tree`.
//!
//! The formula and its order of operations are those of LightGBM (`Tree::Predict` in
//! `include/LightGBM/tree.h`): the constant, and behind it the product of each feature and its
//! coefficient, in the order of the file. If one of the features is missing, the leaf has its plain
//! value instead.

use std::ops::Range;

use crate::{
    Error,
    budget::Budget,
    error::invalid,
    rows::AnyRows,
    tree::{Tree, ZERO},
};

/// The linear model of one leaf. It has as many coefficients as features.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeafModel<'a> {
    pub(crate) constant: f64,
    pub(crate) features: &'a [u32],
    pub(crate) coefficients: &'a [f64],
}

/// The linear models of the leaves of all trees, in the order of the nodes.
#[derive(Debug, Default)]
pub(crate) struct Linear {
    /// The end of the model of each node in `coefficients`. A node without a model ends where the
    /// one before it ends. The nodes behind the last tree with models are left out.
    ends: Vec<u32>,
    /// The constant of each model, then its coefficients.
    coefficients: Vec<f64>,
    /// The feature of each coefficient; 0 beside a constant.
    features: Vec<u32>,
}

/// Linear models with the rows whose values they take: trees may have other numbers for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinearRows<'a> {
    pub(crate) linear: &'a Linear,
    pub(crate) rows: AnyRows<'a>,
}

impl LinearRows<'_> {
    /// [`Linear::value`] for the row with this number.
    #[inline]
    pub(crate) fn value(&self, place: usize, plain: f64, row: usize) -> f64 {
        self.linear.value(place, plain, |feature| self.rows.value(row, feature))
    }
}

impl Linear {
    /// Adds the models of a tree. `before` is the number of nodes of all trees before it; `model`
    /// returns the model of the leaf with this number in the file, if it has one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a model uses a feature on which the tree does not split, and
    /// [`Error::Memory`].
    pub(crate) fn add<'a>(
        &mut self,
        before: usize,
        tree: &Tree,
        model: impl Fn(u32) -> Option<LeafModel<'a>>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        let mut used = Vec::new();
        budget.reserve(&mut used, tree.nodes.len() / 2)?;
        used.extend(tree.nodes.iter().filter(|node| !node.is_leaf()).map(|node| node.feature()));
        used.sort_unstable();
        self.complete(before, budget)?;
        budget.reserve(&mut self.ends, tree.nodes.len())?;
        for node in &tree.nodes {
            if let Some(model) = node.is_leaf().then(|| model(node.id)).flatten() {
                let is_used = |feature: &&u32| used.binary_search(&(**feature as usize)).is_ok();
                if let Some(feature) = model.features.iter().find(|feature| !is_used(feature)) {
                    return Err(invalid(format!(
                        "leaf_features names feature {feature}, on which the tree does not split"
                    )));
                }
                self.push(model, budget)?;
            }
            self.ends.push(self.end()?);
        }
        budget.release::<usize>(used.capacity());
        Ok(())
    }

    /// Gives the first `nodes` nodes an end each.
    fn complete(&mut self, nodes: usize, budget: &mut Budget) -> Result<(), Error> {
        let missing = nodes.saturating_sub(self.ends.len());
        budget.reserve(&mut self.ends, missing)?;
        let end = self.end()?;
        self.ends.resize(nodes, end);
        Ok(())
    }

    fn push(&mut self, model: LeafModel<'_>, budget: &mut Budget) -> Result<(), Error> {
        let length = model.features.len() + 1;
        budget.reserve(&mut self.coefficients, length)?;
        self.coefficients.push(model.constant);
        self.coefficients.extend_from_slice(model.coefficients);
        budget.reserve(&mut self.features, length)?;
        self.features.push(0);
        self.features.extend_from_slice(model.features);
        Ok(())
    }

    /// The end of the last model.
    fn end(&self) -> Result<u32, Error> {
        u32::try_from(self.coefficients.len())
            .map_err(|_| invalid("the coefficients of its leaves are too many"))
    }

    /// True if no leaf has a model.
    pub(crate) fn is_empty(&self) -> bool {
        self.coefficients.is_empty()
    }

    /// The value that the leaf at `place` among the nodes of all trees has for a row. `plain` is
    /// the value of a leaf without a model, and of one that uses a feature that the row lacks.
    #[inline]
    fn value(&self, place: usize, plain: f64, of_row: impl Fn(usize) -> f64) -> f64 {
        let range = self.range(place);
        let features = &self.features[range.clone()];
        let ([constant, coefficients @ ..], [_, features @ ..]) =
            (&self.coefficients[range], features)
        else {
            return plain;
        };
        let mut sum = *constant;
        for (coefficient, feature) in coefficients.iter().zip(features) {
            let value = of_row(*feature as usize);
            if value.is_nan() {
                return plain;
            }
            // LightGBM drops such numbers when it takes a row.
            let value = if value.abs() <= f64::from(ZERO) { 0.0 } else { value };
            sum += coefficient * value;
        }
        sum
    }

    /// The place of the model of a node; empty if it has none.
    #[inline]
    fn range(&self, place: usize) -> Range<usize> {
        let Some(end) = self.ends.get(place) else { return 0..0 };
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        start as usize..*end as usize
    }

    /// Bytes held outside of the structure.
    pub(crate) fn memory(&self) -> usize {
        size_of::<u32>() * (self.ends.capacity() + self.features.capacity())
            + size_of::<f64>() * self.coefficients.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Arrays;

    fn budget() -> Budget {
        Budget::of(1 << 20)
    }

    /// A tree that splits on the feature 1. Its nodes are the split and the leaves 1 and 0.
    fn tree() -> Tree {
        let mut arrays = Arrays::default();
        arrays.left = vec![1, -1, -1];
        arrays.right = vec![2, 1, 0];
        arrays.feature = vec![1, 0, 0];
        arrays.condition = vec![0.5, 0.0, 0.0];
        arrays.default_left = vec![0; 3];
        arrays.doubles = vec![10.0, 20.0];
        arrays.tree(&mut budget()).expect("a tree")
    }

    fn model(leaf: u32) -> Option<LeafModel<'static>> {
        let (features, coefficients) = (&[1, 1], &[2.0, 0.25]);
        (leaf == 0).then_some(LeafModel { constant: 3.0, features, coefficients })
    }

    /// The values of a row by their features.
    fn row_of(row: &[f32]) -> impl Fn(usize) -> f64 {
        |feature| row.get(feature).map_or(f64::NAN, |value| f64::from(*value))
    }

    #[test]
    fn nodes_without_a_model_have_their_plain_values() {
        let mut linear = Linear::default();
        // One tree without models is before the first one with models, and one behind it.
        linear.add(3, &tree(), model, &mut budget()).expect("models");
        linear.add(9, &tree(), model, &mut budget()).expect("models");
        let values = (0..14).map(|place| linear.value(place, -1.0, row_of(&[7.0, 4.0])));
        let with_model = [5, 11].map(|place| (place, 12.0));
        let is_expected = |(place, value)| match with_model.iter().find(|(at, _)| *at == place) {
            Some((_, expected)) => value == *expected,
            None => value == -1.0,
        };
        assert!(values.enumerate().all(is_expected));
    }

    #[test]
    fn a_missing_feature_leads_to_the_plain_value_and_a_tiny_one_is_zero() {
        let mut linear = Linear::default();
        linear.add(0, &tree(), model, &mut budget()).expect("models");
        let value = |row: &[f32]| linear.value(2, -1.0, row_of(row));
        assert_eq!(value(&[0.0, f32::NAN]), -1.0);
        assert_eq!(value(&[0.0]), -1.0);
        assert_eq!(value(&[f32::NAN, 1.0]), 5.25, "no feature of the model is missing");
        assert_eq!(value(&[0.0, f32::INFINITY]), f64::INFINITY);
        let constant: &[f64] = &[1e300];
        let steep = |_| Some(LeafModel { constant: 3.0, features: &[1], coefficients: constant });
        let mut linear = Linear::default();
        linear.add(0, &tree(), steep, &mut budget()).expect("models");
        assert_eq!(linear.value(2, -1.0, row_of(&[0.0, ZERO])), 3.0);
        assert!(linear.value(2, -1.0, row_of(&[0.0, ZERO.next_up()])) > 4.0);
    }

    #[test]
    fn a_model_uses_features_of_its_tree_and_memory_of_the_budget() {
        let other = |_| Some(LeafModel { constant: 0.0, features: &[0], coefficients: &[1.0] });
        let error = Linear::default().add(0, &tree(), other, &mut budget());
        let error = error.expect_err("another feature").to_string();
        assert!(error.contains("feature 0, on which the tree does not split"), "{error}");
        let error = Linear::default().add(1 << 20, &tree(), model, &mut budget());
        assert!(matches!(error, Err(Error::Memory { .. })));
        let (mut linear, mut budget) = (Linear::default(), budget());
        linear.add(100, &tree(), model, &mut budget).expect("models");
        assert_eq!(linear.memory() as u64, budget.held());
    }
}
