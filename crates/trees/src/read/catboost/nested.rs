//! Trees that are not symmetric (`grow_policy` Depthwise and Lossguide): a node of a file has
//! a split and two nodes inside, or it is a leaf with its values.

use super::{set, split};
use crate::{
    Error,
    budget::Budget,
    error::invalid,
    oblivious::{Input, Split},
    read::{json::Json, pull::Document as _},
    tree::{Arrays, Tree},
};

/// The trees of a model.
#[derive(Default)]
pub(super) struct Nested {
    trees: Vec<Tree>,
    /// Values of each leaf. None before the first leaf.
    width: Option<usize>,
    /// The present tree. Its memory is used again for the next one.
    arrays: Arrays,
    /// Leaves of the present tree.
    leaves: i32,
}

impl Nested {
    /// Values of each leaf. None if there are no trees.
    pub(super) fn width(&self) -> Option<usize> {
        self.width
    }

    /// The trees.
    pub(super) fn finish(self, budget: &mut Budget) -> Vec<Tree> {
        self.arrays.free(budget);
        self.trees
    }

    /// Reads a tree whose splits use `inputs`.
    ///
    /// # Errors
    /// [`Error`], also if trees come before the features that their splits use.
    pub(super) fn read(
        &mut self,
        json: &mut Json<'_>,
        inputs: &[Input],
        budget: &mut Budget,
    ) -> Result<(), Error> {
        self.arrays.clear();
        self.leaves = 0;
        self.node(json, inputs, budget)?;
        self.arrays.width = self.width.unwrap_or_default();
        let tree = self.arrays.tree(budget)?;
        budget.push(&mut self.trees, tree)
    }

    /// Reads a node with all nodes inside, and returns its number. The nesting of values, which the
    /// document bounds, bounds the recursion.
    fn node(
        &mut self,
        json: &mut Json<'_>,
        inputs: &[Input],
        budget: &mut Budget,
    ) -> Result<i32, Error> {
        let at = self.add(budget)?;
        let (mut left, mut right, mut condition, mut values) = (None, None, None, None);
        json.object(&mut |json, key| match key {
            "left" if left.is_none() => set(&mut left, self.node(json, inputs, budget).map(Some)),
            // The numbers of leaves ascend from left to right.
            "right" if left.is_some() && right.is_none() => {
                set(&mut right, self.node(json, inputs, budget).map(Some))
            }
            "left" | "right" => {
                Err(invalid("a node has not one left node and then one right node"))
            }
            "split" => set(&mut condition, split(json).map(Some)),
            "value" if values.is_some() => Err(invalid("a leaf has values twice")),
            "value" => set(&mut values, self.values(json, budget).map(Some)),
            _ => json.skip(),
        })?;
        match (left, right, condition, values) {
            (Some(left), Some(right), Some(split), None) => {
                self.set_split(at, [left, right], split, inputs)?;
            }
            (None, None, None, Some(count)) => self.set_leaf(at, count)?,
            _ => return Err(invalid("a node is neither a split of two nodes nor a leaf")),
        }
        Ok(at as i32)
    }

    /// Adds a node, a leaf until it is set, and returns its place.
    fn add(&mut self, budget: &mut Budget) -> Result<usize, Error> {
        let arrays = &mut self.arrays;
        let at = arrays.left.len();
        if i32::try_from(at).is_err() {
            return Err(invalid("a tree has too many nodes"));
        }
        budget.push(&mut arrays.left, -1)?;
        budget.push(&mut arrays.right, -1)?;
        budget.push(&mut arrays.feature, 0)?;
        budget.push(&mut arrays.condition, 0.0)?;
        budget.push(&mut arrays.default_left, 0)?;
        Ok(at)
    }

    /// Reads the values of a leaf: one, or an array of one for each output. Returns their number.
    fn values(&mut self, json: &mut Json<'_>, budget: &mut Budget) -> Result<usize, Error> {
        let doubles = &mut self.arrays.doubles;
        let before = doubles.len();
        if json.next()? == b'[' {
            json.numbers(doubles, budget)?;
        } else {
            budget.push(doubles, json.number()?)?;
        }
        Ok(doubles.len() - before)
    }

    /// Makes a split of a node.
    ///
    /// A value above the border goes right. In the arrays a value below the condition goes left, and
    /// so the condition is the next number above the border.
    fn set_split(
        &mut self,
        at: usize,
        mut children: [i32; 2],
        Split { border, input }: Split,
        inputs: &[Input],
    ) -> Result<(), Error> {
        let Some(Input { column, missing }) = inputs.get(input as usize) else {
            let count = inputs.len();
            return Err(invalid(format!(
                "a split uses float feature {input}, but {count} are known"
            )));
        };
        let arrays = &mut self.arrays;
        // Nothing is above infinity, or above NaN: all goes left. In the arrays no number is below
        // negative infinity, so all goes right there.
        let is_above_all = border.is_nan() || border == f32::INFINITY;
        if is_above_all {
            children.reverse();
        }
        [arrays.left[at], arrays.right[at]] = children;
        arrays.feature[at] = *column;
        arrays.condition[at] = if is_above_all { f32::NEG_INFINITY } else { border.next_up() };
        let goes_right = is_above_all || *missing > border;
        arrays.default_left[at] = u8::from(!goes_right);
        Ok(())
    }

    /// Makes a leaf of a node, whose `count` values have been read.
    fn set_leaf(&mut self, at: usize, count: usize) -> Result<(), Error> {
        match self.width {
            Some(width) if width != count => {
                return Err(invalid(format!("a leaf has {count} values, another one {width}")));
            }
            _ => self.width = Some(count),
        }
        self.arrays.right[at] = self.leaves;
        self.leaves += 1;
        Ok(())
    }
}
