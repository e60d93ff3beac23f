//! Contributions of features to margins: SHAP values, which add up to the margin.
//!
//! The values are those of the path-dependent TreeSHAP (Lundberg, Erion, Lee, "Consistent
//! Individualized Feature Attribution for Tree Ensembles", arXiv:1802.03888, algorithm 2), which
//! XGBoost computes as `pred_contribs`: where a feature is not known, a row goes to both children of
//! a split, in proportion to their covers.
//!
//! They are computed in another way than there. A leaf is reached by the product, over the features
//! on its path, of a factor that is `zero` if the feature is not known and `one` if it is: `zero` is
//! the part of the cover that follows the path at the splits on the feature, `one` is 1 if the row
//! follows it, else 0. The Shapley value of a feature of such a product is the integral from 0 to 1
//! over t of `(one - zero)` times the factors `zero (1 - t) + one t` of all other features (Owen,
//! "Multilinear Extensions of Games", 1972). This is a polynomial in t, whose integral a quadrature
//! of half as many points as there are features gives exactly. All factors are positive, so that long
//! paths lose no precision. The leaves below a split are summed up before the integral is taken, as
//! in Linear TreeShap (Yu et al., NeurIPS 2022), so that the time is in proportion to the nodes times
//! the points.

mod covers;
mod quadrature;
mod walk;

use std::{fmt, ops::Range};

use crate::{
    AnyRows,
    forest::Forest,
    rows::{Input, Memory, Row},
    slots::Slots,
};
pub(crate) use covers::Covers;
use quadrature::Quadrature;
use walk::{Sums, Walk};

/// Levels of the trees whose margins are explained.
const LEVELS: u32 = 256;

/// The reason why the margins of a model cannot be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unexplained {
    /// The file lacks the covers of nodes, or has invalid ones.
    NoCovers,
    /// Leaves have linear models.
    Linear,
    /// A tree has this many levels, which are too many.
    Deep(u32),
}

impl fmt::Display for Unexplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCovers => f.write_str(
                "contributions are computed from the covers of nodes (sum_hessian), and the \
                 model's file has none that are valid",
            ),
            Self::Linear => f.write_str(
                "contributions are computed for leaves that are numbers, and the model has linear \
                 models in leaves (linear_tree)",
            ),
            Self::Deep(levels) => write!(
                f,
                "contributions are computed for trees of at most {LEVELS} levels, and the model \
                 has one of {levels}"
            ),
        }
    }
}

impl std::error::Error for Unexplained {}

/// The columns of a model whose contributions are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// All columns of a dense row.
    All,
    /// Those that splits of the model use. All others have the contribution 0 in every row.
    Used,
}

/// Computes contributions for the margins of one model.
#[derive(Debug)]
pub struct Explainer<'a> {
    pub(crate) forest: &'a Forest,
    pub(crate) covers: &'a Covers,
    /// The trees that count, and the output of each tree of the model.
    pub(crate) trees: Range<usize>,
    pub(crate) groups: &'a [u32],
    /// The base margin of each output.
    pub(crate) base: &'a [f32],
    pub(crate) features: usize,
    /// The slots of the features that splits use.
    pub(crate) slots: &'a Slots,
    pub(crate) columns: Columns,
}

impl Explainer<'_> {
    /// Checks that the trees are not too deep.
    pub(crate) fn checked(self) -> Result<Self, Unexplained> {
        let depth = self.depth();
        if depth > LEVELS { Err(Unexplained::Deep(depth)) } else { Ok(self) }
    }

    /// The number of columns that have a contribution.
    pub fn width(&self) -> usize {
        match self.columns {
            Columns::All => self.features,
            Columns::Used => self.slots.len(),
        }
    }

    /// Contributions of a row: for each output of the model one of each column and, behind them,
    /// the base value, which is the mean margin in the training.
    pub fn columns(&self) -> usize {
        self.base.len().saturating_mul(self.width().saturating_add(1))
    }

    /// The columns that splits of the model use, ascending: those of [`Columns::Used`].
    pub fn used(&self) -> Vec<u64> {
        self.slots.features()
    }

    /// Writes the contributions for `rows`, row after row. Those to an output add up to its margin;
    /// of a sparse row, to that which [`Model::predict`](crate::Model::predict) gives it.
    /// `proceed` is called again and again; the work ends early when it returns false. True if all
    /// was computed.
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::columns`].
    pub fn explain<'r>(
        &self,
        rows: impl Into<AnyRows<'r>>,
        out: &mut [f32],
        proceed: &dyn Fn() -> bool,
    ) -> bool {
        let (rows, columns) = (rows.into(), self.columns());
        assert_eq!(out.len(), rows.len().saturating_mul(columns), "the length of the output");
        if rows.is_empty() {
            return true;
        }
        let levels = self.depth() as usize;
        // A path has at most one feature for each level of the tree.
        let quadrature = Quadrature::exact_to(levels.min(self.features).saturating_sub(1));
        let mut walk = Walk::new(&quadrature, levels, proceed);
        let Some(bases) = self.base_values(&mut walk) else { return false };
        let mut sums = vec![0.0; columns];
        let mut memory = Memory::default();
        // Only models of XGBoost have covers.
        let rows = Input::new(rows, self.slots, None, Some(self.features), &mut memory);
        let mut is_done = true;
        rows.for_each(|at, row| {
            is_done = is_done && self.explain_row(row, &mut walk, &bases, &mut sums);
            if is_done {
                let out = out[at * columns..].iter_mut().zip(&sums);
                out.for_each(|(out, sum)| *out = *sum as f32);
            }
        });
        is_done
    }

    /// Computes the contributions of a row. False if the work is to end early.
    fn explain_row(
        &self,
        row: Row<'_>,
        walk: &mut Walk<'_>,
        bases: &[f64],
        sums: &mut [f64],
    ) -> bool {
        let width = self.width();
        sums.fill(0.0);
        for (sums, base) in sums.chunks_exact_mut(width + 1).zip(bases) {
            sums[width] = *base;
        }
        let slots = (self.columns == Columns::Used).then_some(self.slots);
        for tree in self.trees.clone() {
            let (view, parts) = (self.forest.tree(tree), self.covers.of(tree));
            for output in self.outputs(tree) {
                let of_columns = &mut sums[output * (width + 1)..][..width];
                if !walk.explain(view, parts, (row, output), &mut Sums { of_columns, slots }) {
                    return false;
                }
            }
        }
        true
    }

    /// The base value of each output. None if the work is to end early.
    fn base_values(&self, walk: &mut Walk<'_>) -> Option<Vec<f64>> {
        let mut bases: Vec<_> = self.base.iter().map(|base| f64::from(*base)).collect();
        for tree in self.trees.clone() {
            let (view, parts) = (self.forest.tree(tree), self.covers.of(tree));
            for output in self.outputs(tree) {
                bases[output] += walk.mean(view, parts, output)?;
            }
        }
        Some(bases)
    }

    /// The outputs that a tree adds to: its own, or all if its leaves have vectors.
    fn outputs(&self, tree: usize) -> Range<usize> {
        let own = self.groups[tree] as usize;
        if self.forest.tree(tree).width() == 1 { own..own + 1 } else { 0..self.base.len() }
    }

    /// Levels of the deepest tree.
    fn depth(&self) -> u32 {
        self.trees.clone().map(|tree| self.forest.tree(tree).depth()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
