//! The content of a model file, whatever its format.

use crate::{
    Error, budget::Budget, double::Double, error::invalid, linear::Linear, oblivious::Oblivious,
    tree::Tree,
};

/// Outputs of a row that a model may have.
const OUTPUTS: usize = 1 << 16;

/// The libraries whose models can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Library {
    /// XGBoost, in any of its formats.
    #[default]
    Xgboost,
    /// LightGBM, in its text format.
    Lightgbm,
    /// CatBoost, in JSON.
    Catboost,
}

impl Library {
    /// The name that the library has in its documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xgboost => "XGBoost",
            Self::Lightgbm => "LightGBM",
            Self::Catboost => "CatBoost",
        }
    }
}

/// The kinds of boosters whose models are trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Booster {
    #[default]
    Trees,
    Dart,
}

impl Booster {
    /// The booster of this name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if its models are not trees.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        match name {
            "gbtree" => Ok(Self::Trees),
            "dart" => Ok(Self::Dart),
            "gblinear" => Err(Error::Unsupported(
                "its booster is gblinear, a linear model without trees; train it with the booster \
                 gbtree or dart"
                    .to_owned(),
            )),
            other => Err(Error::Unsupported(format!("the booster {other:?} is not known"))),
        }
    }
}

/// A model as it was read.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) library: Library,
    /// The version of the library that wrote the file: major, minor, patch.
    pub(crate) version: Vec<u32>,
    pub(crate) objective: String,
    pub(crate) booster: Booster,
    /// Base scores, of each output or of all.
    pub(crate) base: Vec<f32>,
    /// True if the base scores are margins, which libraries before 1.0 wrote.
    pub(crate) base_is_margin: bool,
    pub(crate) features: usize,
    /// Names of the features; empty if the file has none.
    pub(crate) names: Vec<String>,
    /// Categories as texts in the order of their codes, each list with its column if the file shows
    /// which one it is.
    pub(crate) categories: Vec<(Option<usize>, Vec<String>)>,
    pub(crate) classes: usize,
    pub(crate) targets: usize,
    /// The number of trees in the file.
    pub(crate) count: usize,
    /// The trees; empty if only the header was read.
    pub(crate) trees: Vec<Tree>,
    /// The trees in place of `trees`, if they are oblivious.
    pub(crate) oblivious: Option<Oblivious>,
    /// The way from sums to values, if leaves are f64.
    pub(crate) double: Option<Double>,
    /// The linear models of leaves of `trees`.
    pub(crate) linear: Linear,
    /// The output of each tree.
    pub(crate) groups: Vec<u32>,
    /// The first tree of each iteration, and the number of trees. Empty in files of libraries
    /// before 2.0.
    pub(crate) iterations: Vec<u32>,
    /// Weights of the trees of dart; empty if all are 1.
    pub(crate) weights: Vec<f32>,
    /// Trees of each output and iteration.
    pub(crate) parallel: usize,
    pub(crate) best_iteration: Option<u32>,
}

impl Content {
    /// Major and minor version of the library that wrote the file.
    pub(crate) fn version(&self) -> (u32, u32) {
        let part = |at: usize| self.version.get(at).copied().unwrap_or_default();
        (part(0), part(1))
    }

    /// The number of outputs of a row.
    pub(crate) fn outputs(&self) -> usize {
        self.classes.max(1).saturating_mul(self.targets.max(1))
    }

    /// Checks what concerns more than one tree, and completes what old files lack.
    ///
    /// # Errors
    /// [`Error::Invalid`], and [`Error::Memory`].
    pub(crate) fn complete(&mut self, budget: &mut Budget) -> Result<(), Error> {
        self.complete_header(budget)?;
        self.check_trees()?;
        self.complete_base(budget)?;
        self.fold_weights()
    }

    /// Checks and completes what does not concern single trees.
    ///
    /// # Errors
    /// As [`Self::complete`].
    pub(crate) fn complete_header(&mut self, budget: &mut Budget) -> Result<(), Error> {
        let outputs = self.outputs();
        if outputs > OUTPUTS {
            return Err(invalid(format!("it has {outputs} outputs; {OUTPUTS} are possible")));
        }
        if !self.names.is_empty() && self.names.len() != self.features {
            let (names, features) = (self.names.len(), self.features);
            return Err(invalid(format!("it has {names} names for {features} features")));
        }
        self.complete_iterations(budget)
    }

    fn check_trees(&self) -> Result<(), Error> {
        let (trees, outputs) = (self.trees.len(), self.outputs());
        if self.groups.len() != trees {
            return Err(invalid(format!(
                "tree_info has not one element for each of {trees} trees"
            )));
        }
        if let Some(group) = self.groups.iter().find(|group| **group as usize >= outputs) {
            return Err(invalid(format!("tree_info names output {group} of {outputs}")));
        }
        for tree in &self.trees {
            if tree.last_feature.is_some_and(|feature| feature >= self.features) {
                return Err(invalid(format!(
                    "a split uses a feature beyond the last of {}",
                    self.features
                )));
            }
            if tree.width != 1 && tree.width != outputs {
                return Err(invalid(
                    "the vectors of its leaves have not one value for each output",
                ));
            }
            if tree.width != self.trees[0].width {
                return Err(invalid("some of its leaves have vectors, others have not"));
            }
        }
        Ok(())
    }

    /// Gives every output a base score.
    fn complete_base(&mut self, budget: &mut Budget) -> Result<(), Error> {
        let outputs = self.outputs();
        if self.base.len() == 1 {
            budget.reserve(&mut self.base, outputs - 1)?;
            self.base.resize(outputs, self.base[0]);
        }
        if self.base.len() != outputs {
            let count = self.base.len();
            return Err(invalid(format!("it has {count} base scores for {outputs} outputs")));
        }
        Ok(())
    }

    fn complete_iterations(&mut self, budget: &mut Budget) -> Result<(), Error> {
        let trees = u32::try_from(self.count).map_err(|_| invalid("too many trees"))?;
        if self.iterations.is_empty() {
            // Libraries that grow trees with vectors write the iterations.
            let vectors = self.trees.first().is_some_and(|tree| tree.width > 1);
            // One tree of an iteration has the values of all outputs.
            let vectors = vectors || self.oblivious.is_some();
            let outputs = if vectors { 1 } else { self.outputs() };
            let step = self.parallel.max(1).saturating_mul(outputs);
            for first in (0..trees).step_by(step) {
                budget.push(&mut self.iterations, first)?;
            }
            budget.push(&mut self.iterations, trees)?;
        }
        let ascending = self.iterations.is_sorted() && self.iterations[0] == 0;
        if !ascending || self.iterations.last() != Some(&trees) {
            return Err(invalid("iteration_indptr does not divide the trees into iterations"));
        }
        Ok(())
    }

    /// Multiplies the leaves with the weights of their trees. XGBoost rounds the same product
    /// before it adds it.
    fn fold_weights(&mut self) -> Result<(), Error> {
        if self.weights.is_empty() {
            return match self.booster {
                Booster::Dart if !self.trees.is_empty() => {
                    Err(invalid("the booster dart has no weight_drop"))
                }
                _ => Ok(()),
            };
        }
        if self.weights.len() != self.trees.len() {
            return Err(invalid("weight_drop has not one element for each tree"));
        }
        let weighted = self.trees.iter_mut().zip(&self.weights);
        weighted.for_each(|(tree, weight)| tree.scale(*weight));
        Ok(())
    }
}
