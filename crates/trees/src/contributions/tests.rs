//! Contributions are the Shapley values by their definition, for random trees and rows.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::{
    Limits, Rows, SparseRows,
    budget::Budget,
    forest::View,
    tree::{Arrays, Tree},
};

const FEATURES: usize = 5;

fn budget() -> Budget {
    Budget::new(&Limits::default(), 1 << 30)
}

/// A split of a tree in the making: the leaf that it replaces, its feature, its threshold, and the
/// covers of its children.
type Split = (usize, u32, i8, [u8; 2]);

fn splits(count: usize) -> impl Strategy<Value = Vec<Split>> {
    let split = (any::<usize>(), 0..FEATURES as u32, -2..3_i8, any::<[u8; 2]>());
    proptest::collection::vec(split, 1..count)
}

/// A tree with these splits. The root has a cover.
fn tree(splits: &[Split]) -> Tree {
    let mut arrays = Arrays::default();
    let mut leaves = Vec::new();
    let add_leaf = |arrays: &mut Arrays, cover| {
        arrays.left.push(-1);
        arrays.right.push(-1);
        arrays.feature.push(0);
        arrays.condition.push(arrays.left.len() as f32 * 1.7 % 5.0 - 2.0);
        arrays.default_left.push(0);
        arrays.covers.push(cover);
        arrays.left.len() - 1
    };
    leaves.push(add_leaf(&mut arrays, 1.0));
    for (at, (leaf, feature, threshold, covers)) in splits.iter().enumerate() {
        let node = leaves.swap_remove(leaf % leaves.len());
        let children = covers.map(|cover| add_leaf(&mut arrays, f32::from(cover)));
        leaves.extend(children);
        (arrays.left[node], arrays.right[node]) = (children[0] as i32, children[1] as i32);
        arrays.feature[node] = *feature;
        arrays.condition[node] = f32::from(*threshold);
        arrays.default_left[node] = (at % 2) as u8;
        if at == 0 {
            arrays.covers[children[0]] += 1.0;
        }
    }
    arrays.tree(&mut budget()).expect("a tree")
}

/// A model of trees with one output.
struct Sample {
    forest: Forest,
    covers: Covers,
    slots: Slots,
    features: usize,
}

impl Sample {
    /// A model whose trees have the compact form, or the general one.
    fn new(mut trees: Vec<Tree>, compact: bool, features: usize) -> Self {
        let covers = Covers::take(&mut trees, &mut budget()).expect("memory").expect("covers");
        let forest = match compact {
            true => Forest::new(trees, &mut budget()).expect("memory"),
            false => Forest::Any(trees),
        };
        let slots = forest.slots(&mut budget()).expect("memory");
        Self { forest, covers, slots, features }
    }

    fn explainer(&self, columns: Columns) -> Explainer<'_> {
        const GROUPS: &[u32] = &[0; 4];
        let (trees, groups) = (0..self.covers.count(), &GROUPS[..self.covers.count()]);
        let Self { forest, covers, slots, features } = self;
        let (base, features) = (&[0.25], *features);
        Explainer { forest, covers, trees, groups, base, features, slots, columns }
    }

    fn explain(&self, row: &[f32]) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.features + 1];
        let rows = Rows::new(row, row.len()).expect("a row");
        assert!(self.explainer(Columns::All).explain(rows, &mut out, &|| true));
        out
    }

    /// The contributions of the columns that splits use, of a sparse row with these entries.
    fn explain_sparse(&self, row: &[(u64, f32)]) -> Vec<f32> {
        let explainer = self.explainer(Columns::Used);
        let (ids, weights): (Vec<_>, Vec<_>) = row.iter().copied().unzip();
        let offsets = [0, row.len() as u32];
        let rows = SparseRows::new(&ids, &weights, &offsets).expect("a row");
        let mut out = vec![f32::NAN; explainer.columns()];
        assert!(explainer.explain(rows, &mut out, &|| true));
        out
    }

    fn margin(&self, row: &[f32]) -> f64 {
        self.mean(&Known { row, is_known: &|_| true })
    }

    /// The mean margin of rows like this one.
    fn mean(&self, of: &Known<'_>) -> f64 {
        let trees = 0..self.covers.count();
        let mean = |tree| of.mean(self.forest.tree(tree), self.covers.of(tree), 0);
        0.25 + trees.map(mean).sum::<f64>()
    }

    /// The Shapley values by their definition: the mean of a feature's effect over all orders in
    /// which the features become known. Then the base value.
    fn by_definition(&self, row: &[f32]) -> Vec<f64> {
        let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
        let count = self.features as u32;
        let mean = |set: u32| self.mean(&Known { row, is_known: &|at| set >> at & 1 == 1 });
        let of_feature = |feature: u32| -> f64 {
            let sets = (0..1 << count).filter(|set: &u32| set >> feature & 1 == 0);
            sets.map(|set| {
                let (size, with) = (set.count_ones(), set | 1 << feature);
                let orders = factorial(size) * factorial(count - size - 1) / factorial(count);
                orders * (mean(with) - mean(set))
            })
            .sum()
        };
        (0..count).map(of_feature).chain([mean(0)]).collect()
    }
}

/// A row of which only some features are known.
struct Known<'a> {
    row: &'a [f32],
    is_known: &'a dyn Fn(usize) -> bool,
}

impl Known<'_> {
    /// The mean below a node: where a feature is not known, both children count by their covers.
    fn mean(&self, tree: View<'_>, parts: &[f32], node: u32) -> f64 {
        let Some(split) = tree.split(node) else { return tree.value(node, 0).into() };
        let left = match (self.is_known)(split.feature) {
            true => f64::from(u8::from(tree.goes_left(node, Row::Dense(self.row)))),
            false => parts[(split.left as usize - 1) / 2].into(),
        };
        let mean = |child| self.mean(tree, parts, child);
        left * mean(split.left) + (1.0 - left) * mean(split.left + 1)
    }
}

fn row() -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![Just(f32::NAN), (-3..3_i8).prop_map(f32::from)];
    proptest::collection::vec(value, FEATURES)
}

proptest! {
    #[test]
    fn contributions_are_shapley_values(
        splits in proptest::collection::vec(splits(12), 1..4),
        row in row(),
        compact in any::<bool>(),
    ) {
        let trees = splits.iter().map(|splits| tree(splits)).collect();
        let sample = Sample::new(trees, compact, FEATURES);
        let (found, expected) = (sample.explain(&row), sample.by_definition(&row));
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
        }
        let sum: f64 = found.iter().map(|value| f64::from(*value)).sum();
        prop_assert!((sum - sample.margin(&row)).abs() < 1e-5);
    }
}

proptest! {
    #[test]
    fn contributions_of_sparse_rows_are_those_of_the_used_columns_of_dense_ones(
        splits in proptest::collection::vec(splits(6), 1..4),
        row in row(),
        compact in any::<bool>(),
    ) {
        let trees: Vec<_> = splits.iter().map(|splits| tree(splits)).collect();
        let sample = Sample::new(trees, compact, FEATURES);
        let used = sample.explainer(Columns::Used).used();
        let dense = sample.explain(&row);
        let entries = row.iter().enumerate().rev().map(|(id, value)| (id as u64, *value));
        // A repeated id, of which the last weight counts, and ids of no column. Fewer entries than
        // there are columns, because a row with as many is taken for complete.
        let mut known = (0..FEATURES).filter(|column| !row[*column].is_nan());
        let repeated = known.next().filter(|_| known.count() + 2 < FEATURES);
        let others = [(FEATURES as u64, 1.0), (1 << 32, 1.0)];
        let entries: Vec<_> =
            repeated.map(|id| (id as u64, 9.0)).into_iter().chain(others).chain(entries).collect();
        let found = sample.explain_sparse(&entries);
        let of_used = used.iter().map(|column| dense[*column as usize]);
        prop_assert_eq!(&found, &of_used.chain([dense[FEATURES]]).collect::<Vec<_>>());
        let unused = (0..FEATURES).filter(|column| !used.contains(&(*column as u64)));
        prop_assert!(unused.into_iter().all(|column| dense[column] == 0.0));
    }
}

/// XGBoost takes a row with as many entries as there are columns for one without missing values.
#[test]
fn contributions_of_a_row_that_counts_as_complete_add_up_to_its_margin() {
    // Missing values of columns 0 and 2 would go left.
    let split = |leaf, feature| (leaf, feature, 0, [3, 1]);
    let splits = [split(0, 1), split(0, 0), split(0, 2)];
    for compact in [false, true] {
        let sample = Sample::new(vec![tree(&splits)], compact, FEATURES);
        let repeated = [(1, -1.0), (1, -1.0), (1, -1.0), (1, -1.0), (1, -1.0)];
        let found = sample.explain_sparse(&repeated);
        // Values that the row lacks go right, as infinity does.
        let mut equal = [f32::INFINITY; FEATURES];
        equal[1] = -1.0;
        let dense = sample.explain(&equal);
        assert_eq!(found, [dense[0], dense[1], dense[2], dense[FEATURES]]);
        let sum: f64 = found.iter().map(|value| f64::from(*value)).sum();
        assert!((sum - sample.margin(&equal)).abs() < 1e-5, "{found:?}");
        let fewer = sample.explain_sparse(&repeated[1..]);
        assert_ne!(found, fewer, "one entry less, and the others are missing");
    }
}

/// A tree that is one long line of splits, each with a feature of its own. Where it is left, the
/// cover is a tenth.
fn line(levels: usize) -> Tree {
    let mut arrays = Arrays::default();
    for at in 0..=2 * levels {
        let is_split = at % 2 == 0 && at < 2 * levels;
        arrays.left.push(if is_split { at as i32 + 1 } else { -1 });
        arrays.right.push(if is_split { at as i32 + 2 } else { -1 });
        arrays.feature.push(if is_split { at as u32 / 2 } else { 0 });
        arrays.condition.push(if is_split { 0.5 } else { at as f32 / levels as f32 });
        arrays.default_left.push(0);
        arrays.covers.push(if at % 2 == 1 { 0.1 } else { 1.0 } * 0.9_f32.powi(at as i32 / 2));
    }
    arrays.tree(&mut budget()).expect("a tree")
}

#[test]
fn long_paths_lose_no_precision() {
    for compact in [false, true] {
        let sample = Sample::new(vec![line(LEVELS as usize)], compact, LEVELS as usize);
        let row = vec![1.0; LEVELS as usize];
        let found = sample.explain(&row);
        assert!(found.iter().all(|value| (-0.01..10.0).contains(value)), "{found:?}");
        let sum: f64 = found.iter().map(|value| f64::from(*value)).sum();
        assert!((sum - sample.margin(&row)).abs() < 1e-4, "{sum}");
    }
}

#[test]
fn deeper_trees_are_not_explained() {
    let levels = LEVELS as usize + 1;
    let sample = Sample::new(vec![line(levels)], true, levels);
    let refused = sample.explainer(Columns::All).checked().expect_err("a deep tree");
    assert_eq!(refused, Unexplained::Deep(LEVELS + 1));
    assert!(refused.to_string().contains("at most 256 levels"), "{refused}");
}

#[test]
fn trees_without_valid_covers_have_none() {
    let covers = |change: &dyn Fn(&mut Vec<f32>)| {
        let mut arrays = Arrays::default();
        arrays.left.extend([1, -1, -1]);
        arrays.right.extend([2, -1, -1]);
        arrays.feature.extend([0; 3]);
        arrays.condition.extend([0.0; 3]);
        arrays.default_left.extend([0; 3]);
        arrays.covers.extend([3.0, 1.0, 2.0]);
        change(&mut arrays.covers);
        let mut trees = [tree(&[(0, 0, 0, [1, 1])]), arrays.tree(&mut budget()).expect("a tree")];
        let covers = Covers::take(&mut trees, &mut budget()).expect("memory");
        covers.map(|covers| covers.of(1).to_vec())
    };
    assert_eq!(covers(&|_| {}), Some(vec![1.0 / 3.0]));
    assert_eq!(covers(&|covers| covers[2] = 0.0), Some(vec![1.0]));
    for (at, value) in [(1, -1.0), (2, f32::NAN), (1, f32::INFINITY)] {
        assert_eq!(covers(&|covers| covers[at] = value), None, "{value}");
    }
    assert_eq!(covers(&|covers| covers.fill(0.0)), None);
    assert_eq!(covers(&|covers| covers.clear()), None);
    assert_eq!(covers(&|covers| covers.push(1.0)), None);
}

#[test]
fn the_work_ends_when_it_is_not_to_proceed() {
    let sample = Sample::new(vec![line(200)], true, 200);
    let rows = vec![1.0; 200 * 100];
    let rows = Rows::new(&rows, 200).expect("rows");
    let mut out = vec![0.0; 100 * 201];
    let questions = Cell::new(0);
    let proceed = || {
        questions.set(questions.get() + 1);
        questions.get() < 3
    };
    assert!(!sample.explainer(Columns::All).explain(rows, &mut out, &proceed));
    assert_eq!(questions.get(), 3);
}
