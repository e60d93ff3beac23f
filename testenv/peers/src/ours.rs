//! The kernels of this project.

use std::ops::Range;

use outrigger_trees as trees;

use crate::{
    Result,
    model::{Model, Scorer, values},
};

/// A model loaded into `outrigger-trees`.
pub(crate) struct Ours<'a> {
    model: &'a trees::Model,
    options: trees::Options,
    width: usize,
    batches: Vec<Range<usize>>,
    out: Vec<f32>,
}

impl<'a> Ours<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        let options = trees::Options { output: trees::Output::Margin, iterations: None };
        let (width, batches, out) = (model.width, Vec::new(), Vec::new());
        Self { model: &model.trees, options, width, batches, out }
    }
}

impl Scorer for Ours<'_> {
    fn prepare(&mut self, _: &[f32], width: usize, batches: &[Range<usize>]) -> Result<()> {
        self.width = width;
        self.batches = batches.to_vec();
        let most = batches.iter().map(Range::len).max().unwrap_or(0);
        self.out = vec![0.0; most * self.model.groups()];
        Ok(())
    }

    fn margins(&mut self, rows: &[f32], at: usize) -> Result<&[f32]> {
        let batch = &self.batches[at];
        let out = &mut self.out[..batch.len() * self.model.groups()];
        let rows = trees::Rows::new(&rows[values(batch, self.width)], self.width)
            .ok_or("the rows are not whole")?;
        self.model.predict(rows, &self.options, out);
        Ok(out)
    }
}
