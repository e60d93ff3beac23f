//! Predictions in f64.

use super::Model;
use crate::{
    AnyRows, Options, Output,
    linear::LinearRows,
    rows::{Input, Memory},
};

impl Model {
    /// Scores rows as [`Self::predict`] does, in the precision of LightGBM and CatBoost. Results
    /// of a model of XGBoost, and numbers of leaves, are those in f32.
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::columns`].
    pub fn predict_f64<'a>(
        &self,
        rows: impl Into<AnyRows<'a>>,
        options: &Options,
        out: &mut [f64],
    ) {
        let all = rows.into();
        let mut memory = Memory::default();
        let rows = self.input(all, options.output, &mut memory);
        assert_eq!(out.len(), rows.len() * self.columns(options), "the length of the output");
        if self.double.is_some() && options.output != Output::Leaf {
            return self.predict_double(all, rows, options, out);
        }
        let mut single = vec![0.0; out.len()];
        self.predict_input(all, rows, options, &mut single);
        out.iter_mut().zip(single).for_each(|(out, value)| *out = f64::from(value));
    }

    /// Scores rows with a model whose leaves are f64; `all` are the rows as they came. The output is
    /// not that of leaves.
    pub(super) fn predict_double(
        &self,
        all: AnyRows<'_>,
        rows: Input<'_>,
        options: &Options,
        out: &mut [f64],
    ) {
        out.fill(0.0);
        let (trees, groups, outputs) = (self.header.trees(options), &self.groups, self.groups());
        match &self.linear {
            None => self.forest.add(rows, trees, groups, outputs, out),
            Some(linear) => {
                let linear = LinearRows { linear, rows: all };
                self.forest.add_linear(linear, rows, trees, groups, outputs, out);
            }
        }
        let Some(double) = &self.double else { return };
        let iterations = self.header.chosen(options);
        for row in out.chunks_exact_mut(self.groups()) {
            double.margins(row, &iterations);
            if options.output == Output::Value {
                double.values(row, &iterations);
            }
        }
    }
}
