//! A model that is ready to score.

use std::{io::BufRead, ops::Range};

use crate::{
    Error, Explainer, Limits, Options, Output, Rows, Unexplained,
    contributions::Covers,
    forest::Forest,
    objective::{Objective, Transform},
    read,
};

/// A tree model: read, validated and immutable.
///
/// Margins are equal to those of XGBoost in every bit: an f32 sum that begins with the base score
/// and takes the leaves in the order of the trees. Values are equal too where XGBoost uses the same
/// mathematical library.
#[derive(Debug)]
pub struct Model {
    features: usize,
    names: Vec<String>,
    /// The base margin of each output.
    base: Vec<f32>,
    objective: Objective,
    forest: Forest,
    /// The covers of the trees; None if the file has none.
    covers: Option<Covers>,
    /// The output of each tree.
    groups: Vec<u32>,
    /// The first tree of each iteration, and the number of trees.
    iterations: Vec<u32>,
    best_iteration: Option<u32>,
}

impl Model {
    /// Reads a model of XGBoost from a file of `size` bytes. No more than those are read.
    ///
    /// # Errors
    /// [`Error`]. A file that is malformed in any way is an error.
    pub fn read(source: &mut dyn BufRead, size: u64, limits: &Limits) -> Result<Self, Error> {
        let (mut content, mut budget) = read::read(source, size, limits)?;
        content.complete(&mut budget)?;
        let objective = Objective::named(&content.objective, content.version());
        if content.base_is_margin {
            // XGBoost turns such a score into a value and back, which may change its last bits.
            content.base.iter_mut().for_each(|base| objective.values(std::slice::from_mut(base)));
        }
        objective.base_margins(&mut content.base);
        Ok(Self {
            features: content.features,
            names: content.names,
            base: content.base,
            objective,
            covers: Covers::take(&mut content.trees, &mut budget)?,
            forest: Forest::new(content.trees, &mut budget)?,
            groups: content.groups,
            iterations: content.iterations,
            best_iteration: content.best_iteration,
        })
    }

    /// Columns of a dense row.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The names of the features, as in the file; empty if it has none.
    pub fn feature_names(&self) -> &[String] {
        &self.names
    }

    /// Outputs of a row: classes or targets.
    pub fn groups(&self) -> usize {
        self.base.len()
    }

    /// Boosting iterations.
    pub fn iterations(&self) -> u32 {
        u32::try_from(self.iterations.len() - 1).unwrap_or(u32::MAX)
    }

    /// The best iteration, counted from 0, if the model was trained with early stopping. It is not
    /// applied unless [`Options::iterations`] says so.
    pub fn best_iteration(&self) -> Option<u32> {
        self.best_iteration
    }

    /// Columns of an output, for all iterations.
    pub fn width(&self, output: Output) -> usize {
        self.columns(&Options { output, iterations: None })
    }

    /// Columns of the output of a prediction with these settings. They differ from
    /// [`Self::width`] for leaves of some of the iterations.
    pub fn columns(&self, options: &Options) -> usize {
        match options.output {
            Output::Margin => self.groups(),
            Output::Leaf => self.trees(options).len(),
            Output::Value if self.objective.transform == Transform::Class => 1,
            Output::Value => self.groups(),
        }
    }

    /// Scores `rows`. The outputs of a row are put into `out` beside each other, row after row.
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::columns`].
    pub fn predict(&self, rows: Rows<'_>, options: &Options, out: &mut [f32]) {
        let columns = self.columns(options);
        assert_eq!(out.len(), rows.len() * columns, "the length of the output");
        let trees = self.trees(options);
        match options.output {
            Output::Leaf => self.forest.leaves(rows, trees, out),
            Output::Margin => self.margins(rows, trees, out),
            Output::Value if columns == self.groups() => {
                self.margins(rows, trees, out);
                let rows = out.chunks_exact_mut(columns);
                rows.for_each(|row| self.objective.values(row));
            }
            Output::Value => {
                let mut margins = vec![0.0; rows.len() * self.groups()];
                self.margins(rows, trees, &mut margins);
                let rows = margins.chunks_exact_mut(self.groups());
                for (margins, out) in rows.zip(out.chunks_exact_mut(columns)) {
                    self.objective.values(margins);
                    out.copy_from_slice(&margins[..columns]);
                }
            }
        }
    }

    /// Finds the leaf of each tree for `rows`, as [`Output::Leaf`] does, but as exact integers.
    /// `iterations` are those of [`Options::iterations`].
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::columns`].
    pub fn leaves(&self, rows: Rows<'_>, iterations: Option<Range<u32>>, out: &mut [u32]) {
        let trees = self.trees(&Options { output: Output::Leaf, iterations });
        assert_eq!(out.len(), rows.len() * trees.len(), "the length of the output");
        self.forest.leaves(rows, trees, out);
    }

    /// Explains the margins of rows by the contributions of their features. `iterations` are those
    /// of [`Options::iterations`].
    ///
    /// # Errors
    /// [`Unexplained`].
    pub fn explainer(&self, iterations: Option<Range<u32>>) -> Result<Explainer<'_>, Unexplained> {
        let explainer = Explainer {
            forest: &self.forest,
            covers: self.covers.as_ref().ok_or(Unexplained::NoCovers)?,
            trees: self.trees(&Options { output: Output::Margin, iterations }),
            groups: &self.groups,
            base: &self.base,
            features: self.features,
        };
        explainer.checked()
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let names: usize = self.names.iter().map(String::capacity).sum();
        let words = self.base.capacity() + self.groups.capacity() + self.iterations.capacity();
        let names = names + size_of::<String>() * self.names.capacity();
        let covers = self.covers.as_ref().map_or(0, Covers::memory);
        size_of::<Self>() + names + self.forest.memory() + covers + 4 * words
    }

    /// The trees of the iterations that count.
    fn trees(&self, options: &Options) -> Range<usize> {
        let all = 0..self.iterations();
        let chosen = options.iterations.clone().unwrap_or_else(|| all.clone());
        let end = chosen.end.min(all.end);
        let first = |iteration: u32| self.iterations[iteration as usize] as usize;
        first(chosen.start.min(end))..first(end)
    }

    fn margins(&self, rows: Rows<'_>, trees: Range<usize>, out: &mut [f32]) {
        out.chunks_exact_mut(self.groups()).for_each(|row| row.copy_from_slice(&self.base));
        self.forest.add(rows, trees, &self.groups, self.groups(), out);
    }
}
