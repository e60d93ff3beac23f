//! The kernels of this project.

use std::ops::Range;

use outrigger_trees as trees;

use crate::{
    Result,
    model::{Margins, Model, Scorer, values},
    rows::Entries,
};

/// A model loaded into `outrigger-trees`.
pub(crate) struct Ours<'a> {
    model: &'a trees::Model,
    options: trees::Options,
    width: usize,
    batches: Vec<Range<usize>>,
    out: Out,
}

/// The margins of a call: f32 as XGBoost's, f64 as those of the other libraries.
enum Out {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl<'a> Ours<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        let options = trees::Options { output: trees::Output::Margin, iterations: None };
        let (width, batches) = (model.width, Vec::new());
        let out = match model.trees.library() {
            trees::Library::Xgboost => Out::Single(Vec::new()),
            _ => Out::Double(Vec::new()),
        };
        Self { model: &model.trees, options, width, batches, out }
    }

    /// Makes room for the margins of at most `rows` rows.
    fn resize(&mut self, rows: usize) {
        let most = rows * self.model.groups();
        match &mut self.out {
            Out::Single(out) => out.resize(most, 0.0),
            Out::Double(out) => out.resize(most, 0.0),
        }
    }

    fn predict(&mut self, rows: trees::AnyRows<'_>) -> Margins<'_> {
        let count = rows.len() * self.model.groups();
        match &mut self.out {
            Out::Single(out) => {
                self.model.predict(rows, &self.options, &mut out[..count]);
                Margins::Single(&out[..count])
            }
            Out::Double(out) => {
                self.model.predict_f64(rows, &self.options, &mut out[..count]);
                Margins::Double(&out[..count])
            }
        }
    }
}

impl Scorer for Ours<'_> {
    fn prepare(&mut self, _: &[f32], width: usize, batches: &[Range<usize>]) -> Result<()> {
        self.width = width;
        self.batches = batches.to_vec();
        self.resize(batches.iter().map(Range::len).max().unwrap_or(0));
        Ok(())
    }

    fn margins(&mut self, rows: &[f32], at: usize) -> Result<Margins<'_>> {
        let values = &rows[values(&self.batches[at], self.width)];
        let rows = trees::Rows::new(values, self.width).ok_or("the rows are not whole")?;
        Ok(self.predict(rows.into()))
    }

    fn margins_of(&mut self, rows: &Entries) -> Result<Margins<'_>> {
        let rows = trees::SparseRows::new(&rows.ids, &rows.weights, &rows.offsets)?;
        self.resize(rows.len());
        Ok(self.predict(rows.into()))
    }
}
