//! Oblivious trees, as CatBoost grows them: all nodes of a level have the same split, so that the
//! outcomes of the splits, a bit for each level, are the number of the leaf.

use std::ops::Range;

use crate::{Error, Rows, budget::Budget, error::invalid, kernel::LANES};

/// The split of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    /// Values above it set the bit of the level.
    pub(crate) border: f32,
    /// The number of the feature among the inputs.
    pub(crate) input: u32,
}

/// A feature that splits may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Input {
    /// The column of the feature in a row.
    pub(crate) column: u32,
    /// The value that a missing one counts as.
    pub(crate) missing: f32,
}

/// The first split and the first value of a tree.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    split: usize,
    value: usize,
}

/// The trees of a model.
#[derive(Debug)]
pub(crate) struct Oblivious {
    inputs: Vec<Input>,
    splits: Vec<Split>,
    /// The values of the leaves of all trees: one for each output, leaf after leaf.
    values: Vec<f64>,
    /// The place of each tree, and that behind the last one.
    places: Vec<Place>,
    outputs: usize,
}

/// Rows that are faster by themselves than in a block that is not full.
const ALONE: usize = 4;

impl Oblivious {
    /// No trees.
    pub(crate) fn new(budget: &mut Budget) -> Result<Self, Error> {
        let (inputs, splits, values) = (Vec::new(), Vec::new(), Vec::new());
        let mut places = Vec::new();
        budget.push(&mut places, Place::default())?;
        Ok(Self { inputs, splits, values, places, outputs: 1 })
    }

    /// The number of trees.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - 1
    }

    /// Adds a tree: its splits, the lowest bit first, and the values of its leaves.
    pub(crate) fn push(
        &mut self,
        splits: &[Split],
        values: &[f64],
        budget: &mut Budget,
    ) -> Result<(), Error> {
        budget.reserve(&mut self.splits, splits.len())?;
        self.splits.extend_from_slice(splits);
        budget.reserve(&mut self.values, values.len())?;
        self.values.extend_from_slice(values);
        let place = Place { split: self.splits.len(), value: self.values.len() };
        budget.push(&mut self.places, place)
    }

    /// Completes the trees with the features that their splits are numbered by.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless every leaf has a value for each output, and every split an input.
    pub(crate) fn complete(&mut self, inputs: Vec<Input>, outputs: usize) -> Result<(), Error> {
        for (tree, places) in self.places.windows(2).enumerate() {
            let depth = u32::try_from(places[1].split - places[0].split).unwrap_or(u32::MAX);
            let leaves = 1_usize.checked_shl(depth).filter(|_| depth < 31);
            if leaves.and_then(|leaves| leaves.checked_mul(outputs))
                != Some(places[1].value - places[0].value)
            {
                return Err(invalid(format!(
                    "tree {tree} has {depth} splits, but not a value for each leaf and output"
                )));
            }
        }
        if let Some(split) = self.splits.iter().find(|split| split.input as usize >= inputs.len()) {
            return Err(invalid(format!("a split uses float feature {}", split.input)));
        }
        (self.inputs, self.outputs) = (inputs, outputs);
        Ok(())
    }

    /// Adds the values of the leaves of `trees` to `sums`, which has an element for each row and
    /// output.
    pub(crate) fn add(&self, rows: Rows<'_>, trees: Range<usize>, sums: &mut [f64]) {
        let outputs = self.outputs;
        self.for_each(rows, trees, |first, tree, leaves| {
            let values = &self.values[self.places[tree].value..self.places[tree + 1].value];
            let sums = sums[first * outputs..].chunks_exact_mut(outputs);
            for (sums, leaf) in sums.zip(leaves) {
                let values = &values[*leaf as usize * outputs..];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        });
    }

    /// Calls `write` with the place of each leaf among those of all rows and `trees`, row after row,
    /// and with its number.
    pub(crate) fn leaves(
        &self,
        rows: Rows<'_>,
        trees: Range<usize>,
        mut write: impl FnMut(usize, u32),
    ) {
        self.for_each(rows, trees.clone(), |first, tree, leaves| {
            for (row, leaf) in (first..).zip(leaves) {
                write(row * trees.len() + tree - trees.start, *leaf);
            }
        });
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Input>() * self.inputs.capacity()
            + size_of::<Split>() * self.splits.capacity()
            + size_of::<f64>() * self.values.capacity()
            + size_of::<Place>() * self.places.capacity()
    }

    /// Calls `visit` with the first of some rows, a tree, and the leaves of these rows. For each row
    /// the trees come in ascending order.
    fn for_each(
        &self,
        rows: Rows<'_>,
        trees: Range<usize>,
        mut visit: impl FnMut(usize, usize, &[u32]),
    ) {
        let alone = match rows.len() % LANES {
            rest @ ..ALONE => rest,
            _ => 0,
        };
        let blocks = rows.len() - alone;
        self.blocks::<LANES>(rows, 0..blocks, trees.clone(), &mut visit);
        self.blocks::<1>(rows, blocks..rows.len(), trees, &mut visit);
    }

    /// Does so for blocks of at most `N` of the rows in `range`.
    fn blocks<const N: usize>(
        &self,
        rows: Rows<'_>,
        range: Range<usize>,
        trees: Range<usize>,
        visit: &mut impl FnMut(usize, usize, &[u32]),
    ) {
        if range.is_empty() {
            return;
        }
        let mut values = vec![[0.0; N]; self.inputs.len()];
        let mut rows = rows.iter().skip(range.start);
        for first in range.clone().step_by(N) {
            let count = N.min(range.end - first);
            for (lane, row) in rows.by_ref().take(count).enumerate() {
                self.fill(row, lane, &mut values);
            }
            for tree in trees.clone() {
                visit(first, tree, &self.find(tree, &values)[..count]);
            }
        }
    }

    /// Puts the values of a row into a lane.
    fn fill<const N: usize>(&self, row: &[f32], lane: usize, values: &mut [[f32; N]]) {
        for (input, values) in self.inputs.iter().zip(values) {
            let value = row.get(input.column as usize).copied().unwrap_or(f32::NAN);
            values[lane] = if value.is_nan() { input.missing } else { value };
        }
    }

    /// The leaves of a tree.
    fn find<const N: usize>(&self, tree: usize, values: &[[f32; N]]) -> [u32; N] {
        let mut leaves = [0; N];
        let splits = &self.splits[self.places[tree].split..self.places[tree + 1].split];
        for (level, split) in splits.iter().enumerate() {
            let values = &values[split.input as usize];
            for (leaf, value) in leaves.iter_mut().zip(values) {
                *leaf |= u32::from(*value > split.border) << level;
            }
        }
        leaves
    }
}
