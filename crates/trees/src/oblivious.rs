//! Oblivious trees, as CatBoost grows them: all nodes of a level have the same split, so that the
//! outcomes of the splits, a bit for each level, are the number of the leaf.

use crate::{Error, budget::Budget, error::invalid, rows::Row};

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
    /// [`Error::Invalid`] unless every leaf has a value for each output, and every split an input,
    /// and [`Error::Unsupported`] if there are more values than kernels count.
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
        // Processors take the indices of a gather for signed numbers.
        if i32::try_from(self.values.len()).is_err() {
            return Err(Error::Unsupported("its leaves have 2^31 values or more".to_owned()));
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
    #[inline(always)]
    pub(crate) fn first_leaf(&self, tree: usize) -> usize {
        self.places[tree].value / self.outputs
    }

    /// The values of the leaves of all trees: one for each output, leaf after leaf.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// The number of inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The splits of a tree, the lowest bit first.
    #[inline(always)]
    pub(crate) fn splits(&self, tree: usize) -> &[Split] {
        &self.splits[self.places[tree].split..self.places[tree + 1].split]
    }

    /// The values of the inputs in a row.
    pub(crate) fn values_of<'a>(&'a self, row: Row<'a>) -> impl Iterator<Item = f32> + 'a {
        self.inputs.iter().map(move |input| {
            let value = row.value(input.column as usize);
            if value.is_nan() { input.missing } else { value }
        })
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Input>() * self.inputs.capacity()
            + size_of::<Split>() * self.splits.capacity()
            + size_of::<f64>() * self.values.capacity()
            + size_of::<Place>() * self.places.capacity()
    }
}
