//! Oblivious trees, as CatBoost grows them: all nodes of a level have the same split, so that the
//! outcomes of the splits, a bit for each level, are the number of the leaf.

use std::ops::Range;

use crate::{
    Error,
    budget::Budget,
    error::invalid,
    kernel::LANES,
    rows::{self, Row},
};

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

    /// The columns of the inputs, ascending.
    pub(crate) fn features(&self, budget: &mut Budget) -> Result<Vec<u32>, Error> {
        let mut features = Vec::new();
        budget.reserve(&mut features, self.inputs.len())?;
        features.extend(self.inputs.iter().map(|input| input.column));
        features.sort_unstable();
        features.dedup();
        Ok(features)
    }

    /// Calls `visit` for each leaf, tree after tree, with its tree and its number.
    pub(crate) fn for_each_leaf(&self, mut visit: impl FnMut(usize, u32)) {
        for tree in 0..self.len() {
            let leaves = self.first_leaf(tree + 1) - self.first_leaf(tree);
            (0..leaves).for_each(|leaf| visit(tree, leaf as u32));
        }
    }

    /// The number of leaves before those of `tree`.
    pub(crate) fn first_leaf(&self, tree: usize) -> usize {
        self.places[tree].value / self.outputs
    }

    /// Adds the values of the leaves of `trees` to `sums`, which has an element for each row and
    /// output.
    pub(crate) fn add(&self, rows: rows::Input<'_>, trees: Range<usize>, sums: &mut [f64]) {
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
    /// with its tree, and with its number.
    pub(crate) fn leaves(
        &self,
        rows: rows::Input<'_>,
        trees: Range<usize>,
        mut write: impl FnMut(usize, usize, u32),
    ) {
        self.for_each(rows, trees.clone(), |first, tree, leaves| {
            for (row, leaf) in (first..).zip(leaves) {
                write(row * trees.len() + tree - trees.start, tree, *leaf);
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
        rows: rows::Input<'_>,
        trees: Range<usize>,
        mut visit: impl FnMut(usize, usize, &[u32]),
    ) {
        let alone = match rows.len() % LANES {
            rest @ ..ALONE => rest,
            _ => 0,
        };
        let blocks = rows.len() - alone;
        let mut block = vec![[0.0; LANES]; if blocks > 0 { self.inputs.len() } else { 0 }];
        let mut single = vec![[0.0; 1]; if alone > 0 { self.inputs.len() } else { 0 }];
        rows.for_each(|at, row| {
            if at >= blocks {
                self.fill(row, 0, &mut single);
                return trees.clone().for_each(|tree| visit(at, tree, &self.find(tree, &single)));
            }
            let lane = at % LANES;
            self.fill(row, lane, &mut block);
            if lane + 1 == LANES || at + 1 == blocks {
                let mut visit = |tree| visit(at - lane, tree, &self.find(tree, &block)[..=lane]);
                trees.clone().for_each(&mut visit);
            }
        });
    }

    /// Puts the values of a row into a lane.
    fn fill<const N: usize>(&self, row: Row<'_>, lane: usize, values: &mut [[f32; N]]) {
        for (input, values) in self.inputs.iter().zip(values) {
            let value = row.value(input.column as usize);
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
