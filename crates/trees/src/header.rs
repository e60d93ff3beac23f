//! The description of a model, which is read without its trees.

use std::{io::BufRead, ops::Range};

use crate::{
    Error, Library, Limits, Options, Output,
    objective::{Objective, Transform},
    read::{self, Content, Extent},
};

/// The description of a model: its features, its outputs and its iterations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    library: Library,
    features: usize,
    names: Vec<String>,
    categories: Vec<(Option<usize>, Vec<String>)>,
    outputs: usize,
    pub(crate) objective: Objective,
    /// The first tree of each iteration, and the number of trees.
    iterations: Vec<u32>,
    /// Trees of each output in an iteration.
    parallel: u32,
    best_iteration: Option<u32>,
}

impl Header {
    /// Reads the description of a model from a file of `size` bytes. The trees of XGBoost are
    /// skipped: memory is taken for names and for a number of each iteration, and what is wrong with
    /// a tree is found only by [`Model::read`](crate::Model::read). Files of other libraries are
    /// read as a whole.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(source: &mut dyn BufRead, size: u64, limits: &Limits) -> Result<Self, Error> {
        let (mut content, mut budget) = read::read(source, size, limits, Extent::Header)?;
        content.complete_header(&mut budget)?;
        Ok(Self::new(&mut content))
    }

    /// Takes the description out of the content of a file, which is complete.
    pub(crate) fn new(content: &mut Content) -> Self {
        Self {
            library: content.library,
            features: content.features,
            names: std::mem::take(&mut content.names),
            categories: std::mem::take(&mut content.categories),
            outputs: content.outputs(),
            objective: Objective::named(&content.objective, content.version()),
            iterations: std::mem::take(&mut content.iterations),
            parallel: u32::try_from(content.parallel.max(1)).unwrap_or(u32::MAX),
            best_iteration: content.best_iteration,
        }
    }

    /// The library that wrote the model.
    pub fn library(&self) -> Library {
        self.library
    }

    /// Columns of a dense row.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The names of the features, as in the file; empty if it has none.
    pub fn feature_names(&self) -> &[String] {
        &self.names
    }

    /// The categories of features as texts in the order of their codes, each list with its column:
    /// those of XGBoost since 3.1, and those of LightGBM's columns that had categories in the
    /// training's frame of pandas.
    pub fn categories(&self) -> &[(Option<usize>, Vec<String>)] {
        &self.categories
    }

    /// A remark about the file for whoever checks or loads the model.
    pub fn remark(&self) -> Option<&'static str> {
        (self.library == Library::Catboost && self.names.is_empty()).then_some(
            "the file has no names of features, as those of CatBoost 1.0: the order of the features in \
             metadata.json is not compared with that of the training",
        )
    }

    /// Outputs of a row: classes or targets.
    pub fn groups(&self) -> usize {
        self.outputs
    }

    /// Boosting iterations.
    pub fn iterations(&self) -> u32 {
        u32::try_from(self.iterations.len() - 1).unwrap_or(u32::MAX)
    }

    /// Trees of each output in an iteration: XGBoost's `num_parallel_tree`, at least 1.
    pub fn parallel_trees(&self) -> u32 {
        self.parallel
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

    /// The iterations that count.
    pub(crate) fn chosen(&self, options: &Options) -> Range<u32> {
        let all = 0..self.iterations();
        let chosen = options.iterations.clone().unwrap_or_else(|| all.clone());
        let end = chosen.end.min(all.end);
        chosen.start.min(end)..end
    }

    /// The trees of the iterations that count.
    pub(crate) fn trees(&self, options: &Options) -> Range<usize> {
        let first = |iteration: u32| self.iterations[iteration as usize] as usize;
        let chosen = self.chosen(options);
        first(chosen.start)..first(chosen.end)
    }

    /// Bytes held outside of the value itself.
    pub(crate) fn memory(&self) -> usize {
        let lists = self.categories.iter().map(|(_, words)| words).chain([&self.names]);
        let of_list = |words: &Vec<String>| {
            let texts: usize = words.iter().map(String::capacity).sum();
            texts + size_of::<String>() * words.capacity()
        };
        let lists: usize = lists.map(of_list).sum();
        lists + size_of::<u32>() * self.iterations.capacity()
    }
}
