//! The walk through one tree that gives the contributions of one row.

use super::Quadrature;
use crate::{
    forest::{Split, View},
    rows::Row,
    slots::Slots,
};

/// Nodes between two questions whether to proceed.
const STRIDE: u32 = 1 << 12;

/// The factor of a feature in the product of a path.
#[derive(Debug, Clone, Copy)]
struct Factor {
    /// The part of the cover that follows the path at the splits on the feature.
    zero: f64,
    /// 1 if the row follows the path at these splits, else 0.
    one: f64,
}

impl Factor {
    /// That of a feature without a split on the path.
    const NONE: Self = Self { zero: 1.0, one: 1.0 };

    fn at(self, t: f64) -> f64 {
        self.zero * (1.0 - t) + self.one * t
    }

    fn difference(self) -> f64 {
        self.one - self.zero
    }
}

/// A walk through trees. Its memory is used again for each.
pub(super) struct Walk<'a> {
    quadrature: &'a Quadrature,
    /// For each level of the path to the current node, and each point of the quadrature, the product
    /// of all factors.
    products: Vec<f64>,
    /// For each level and point, the sum of the leaves below the node, each times its product.
    sums: Vec<f64>,
    /// For each split on the current path, its feature and the factor that it has there.
    path: Vec<(usize, Factor)>,
    proceed: &'a dyn Fn() -> bool,
    visited: u32,
    is_over: bool,
}

/// The tree, row and output of a walk.
#[derive(Clone, Copy)]
struct Task<'a> {
    tree: View<'a>,
    /// The part of the cover of each split that its left child has.
    parts: &'a [f32],
    row: Row<'a>,
    output: usize,
}

/// The contributions to one output, which a walk adds to.
pub(super) struct Sums<'a> {
    pub(super) of_columns: &'a mut [f64],
    /// The slots of features if only the columns of those have contributions.
    pub(super) slots: Option<&'a Slots>,
}

impl Sums<'_> {
    fn add(&mut self, feature: usize, contribution: f64) {
        let column = match self.slots {
            Some(slots) => slots.get(feature as u64).expect("features of splits have slots"),
            None => feature,
        };
        self.of_columns[column] += contribution;
    }
}

impl Task<'_> {
    /// The children of the split at `node`: the number, the part of the cover, and true for the one
    /// to which the row goes.
    fn children(&self, node: u32, split: Split) -> [(u32, f64, bool); 2] {
        let goes_left = self.tree.goes_left(node, self.row);
        let [left, right] = parts(self.parts, split);
        [(split.left, left, goes_left), (split.left + 1, right, !goes_left)]
    }

    fn value(&self, leaf: u32) -> f64 {
        f64::from(self.tree.value(leaf, self.output))
    }
}

/// The parts of the cover that the children of a split have. The first split has the nodes 1 and 2
/// for children, the next one 3 and 4, and so on.
fn parts(of_left: &[f32], split: Split) -> [f64; 2] {
    let left = f64::from(of_left[(split.left as usize - 1) / 2]);
    [left, 1.0 - left]
}

impl<'a> Walk<'a> {
    /// A walk through trees of at most `levels` levels.
    pub(super) fn new(
        quadrature: &'a Quadrature,
        levels: usize,
        proceed: &'a dyn Fn() -> bool,
    ) -> Self {
        let length = (levels + 1) * quadrature.points.len();
        Self {
            quadrature,
            products: vec![1.0; length],
            sums: vec![0.0; length],
            path: Vec::with_capacity(levels),
            proceed,
            visited: 0,
            is_over: false,
        }
    }

    /// Adds the contributions of `row` to an output of a tree to `sums`. False if the work is to end
    /// early.
    pub(super) fn explain(
        &mut self,
        tree: View<'_>,
        parts: &[f32],
        (row, output): (Row<'_>, usize),
        sums: &mut Sums<'_>,
    ) -> bool {
        self.visit(Task { tree, parts, row, output }, 0, 0, sums);
        !self.is_over
    }

    /// The mean of a tree over the rows of its training. None if the work is to end early.
    pub(super) fn mean(&mut self, tree: View<'_>, parts: &[f32], output: usize) -> Option<f64> {
        let mean = self.mean_below(Task { tree, parts, row: Row::Dense(&[]), output }, 0);
        (!self.is_over).then_some(mean)
    }

    fn mean_below(&mut self, task: Task<'_>, node: u32) -> f64 {
        if self.is_over() {
            return 0.0;
        }
        let Some(split) = task.tree.split(node) else { return task.value(node) };
        let [left, right] = parts(task.parts, split);
        let [below, other] = [split.left, split.left + 1].map(|child| self.mean_below(task, child));
        left * below + right * other
    }

    /// Visits the node at the end of the current path, which has `level` splits, and all nodes below
    /// it.
    fn visit(&mut self, task: Task<'_>, node: u32, level: usize, sums: &mut Sums<'_>) {
        let count = self.quadrature.points.len();
        let (start, next) = (level * count, (level + 1) * count);
        let Some(split) = task.tree.split(node) else {
            let value = task.value(node);
            let products = &self.products[start..next];
            let leaves = self.sums[start..next].iter_mut().zip(products);
            return leaves.for_each(|(leaf, product)| *leaf = value * product);
        };
        self.sums[start..next].fill(0.0);
        for (child, part, follows) in task.children(node, split) {
            let before = self.factor(split.feature);
            let one = if follows { before.one } else { 0.0 };
            let after = Factor { zero: before.zero * part, one };
            // Nothing below such a child counts, whether the feature is known or not.
            if self.is_over() || after.zero == 0.0 && after.one == 0.0 {
                continue;
            }
            self.enter(level, before, after);
            self.path.push((split.feature, after));
            self.visit(task, child, level + 1, sums);
            self.path.pop();
            sums.add(split.feature, self.leave(level, before, after));
        }
    }

    /// The factor of a feature on the current path.
    fn factor(&self, feature: usize) -> Factor {
        let last = self.path.iter().rev().find(|(of, _)| *of == feature);
        last.map_or(Factor::NONE, |(_, factor)| *factor)
    }

    /// Computes the products of the next level, where `after` takes the place of the factor `before`.
    fn enter(&mut self, level: usize, before: Factor, after: Factor) {
        let points = &self.quadrature.points;
        let (above, below) = self.products.split_at_mut((level + 1) * points.len());
        let above = &above[level * points.len()..];
        for ((below, above), t) in below.iter_mut().zip(above).zip(points) {
            *below = above / before.at(*t) * after.at(*t);
        }
    }

    /// Adds the sums of the next level to those of this one, and returns the contribution of the
    /// feature whose factor is `after` there and `before` here.
    ///
    /// The leaves below count with `before` in the contribution of an earlier split on the same
    /// feature, which is taken back here.
    fn leave(&mut self, level: usize, before: Factor, after: Factor) -> f64 {
        let Quadrature { points, weights } = self.quadrature;
        let (above, below) = self.sums.split_at_mut((level + 1) * points.len());
        let above = &mut above[level * points.len()..];
        let (now, then) = (after.difference(), before.difference());
        let mut contribution = 0.0;
        for (((above, below), t), weight) in above.iter_mut().zip(below).zip(points).zip(weights) {
            *above += *below;
            contribution += weight * *below * (now / after.at(*t) - then / before.at(*t));
        }
        contribution
    }

    /// True if the work is to end early. To be called for each node.
    fn is_over(&mut self) -> bool {
        self.visited += 1;
        if self.visited == STRIDE {
            self.visited = 0;
            self.is_over |= !(self.proceed)();
        }
        self.is_over
    }
}
