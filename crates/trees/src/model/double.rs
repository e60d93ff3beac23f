//! Predictions in f64.

use super::Model;
use crate::{Options, Output, Rows};

impl Model {
    /// Scores `rows` as [`Self::predict`] does, in the precision of LightGBM and CatBoost. Results
    /// of a model of XGBoost, and numbers of leaves, are those in f32.
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::columns`].
    pub fn predict_f64(&self, rows: Rows<'_>, options: &Options, out: &mut [f64]) {
        assert_eq!(out.len(), rows.len() * self.columns(options), "the length of the output");
        let (Some(double), Output::Margin | Output::Value) = (&self.double, options.output) else {
            let mut single = vec![0.0; out.len()];
            self.predict(rows, options, &mut single);
            out.iter_mut().zip(single).for_each(|(out, value)| *out = f64::from(value));
            return;
        };
        out.fill(0.0);
        self.forest.add(rows, self.trees(options), &self.groups, self.groups(), out);
        let iterations = self.chosen(options);
        for row in out.chunks_exact_mut(self.groups()) {
            double.margins(row, &iterations);
            if options.output == Output::Value {
                double.values(row, &iterations);
            }
        }
    }
}
