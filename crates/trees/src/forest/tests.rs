//! The kernels find the same leaves as the walk, for random trees and rows.

mod linear;

use std::io::{Write as _, stderr};

use proptest::prelude::*;

use super::*;
use crate::{
    Limits, Rows, SparseRows,
    compact::Nodes,
    kernel::{Kernel, Kind},
    tree::Arrays,
};

/// A source of random numbers: xorshift (Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }

    /// A number that is often equal to another, and sometimes missing or infinite.
    fn number(&mut self) -> f32 {
        match self.below(12) {
            0 => f32::NAN,
            1 => [f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0][self.below(4)],
            _ => self.below(16) as f32 / 4.0 - 2.0,
        }
    }
}

fn budget() -> Budget {
    Budget::new(&Limits::default(), 1 << 30)
}

/// A tree with `splits` splits at random places, or in one long line. Its leaves have their values
/// in f64 too, if it is `double`.
fn tree(random: &mut Random, splits: usize, features: usize, line: bool, double: bool) -> Tree {
    let mut arrays = Arrays::default();
    let mut leaves = vec![0];
    let add_leaf = |arrays: &mut Arrays, random: &mut Random| {
        arrays.left.push(-1);
        arrays.right.push(-1);
        arrays.feature.push(0);
        arrays.condition.push(random.below(2000) as f32 / 7.0 - 140.0);
        arrays.default_left.push(0);
        arrays.left.len() as i32 - 1
    };
    add_leaf(&mut arrays, random);
    for _ in 0..splits {
        let chosen = if line { leaves.len() - 1 } else { random.below(leaves.len()) };
        let node = leaves.swap_remove(chosen);
        let children = [add_leaf(&mut arrays, random), add_leaf(&mut arrays, random)];
        leaves.extend(children.map(|child| child as usize));
        (arrays.left[node], arrays.right[node]) = (children[0], children[1]);
        arrays.feature[node] = 3 * random.below(features) as u32;
        arrays.condition[node] = random.number();
        arrays.default_left[node] = random.below(2) as u8;
    }
    if double {
        let numbered = (0..).zip(arrays.right.iter_mut().filter(|right| **right == -1));
        numbered.for_each(|(number, right)| *right = number);
        let value = || random.below(2000) as f64 / 7.0 - 140.0;
        arrays.doubles = std::iter::repeat_with(value).take(splits + 1).collect();
    }
    arrays.tree(&mut budget()).expect("a tree")
}

/// Random trees.
fn trees(seed: u64, trees: usize, splits: usize, features: usize, double: bool) -> Vec<Tree> {
    let mut random = Random(seed | 1);
    let mut each = || {
        let (splits, line) = (random.below(splits + 1), random.below(8) == 0);
        tree(&mut random, splits, features, line, double)
    };
    (0..trees).map(|_| each()).collect()
}

/// Margins as bits, and leaves.
fn results(
    forest: &Forest,
    rows: Input<'_>,
    trees: Range<usize>,
    (groups, outputs): (&[u32], usize),
    double: bool,
) -> (Vec<u64>, Vec<f32>) {
    let mut leaves = vec![-1.0; rows.len() * trees.len()];
    forest.leaves(rows, trees.clone(), &mut leaves);
    let sums = if double {
        let mut sums = vec![0.5_f64; rows.len() * outputs];
        forest.add(rows, trees, groups, outputs, &mut sums);
        sums.into_iter().map(f64::to_bits).collect()
    } else {
        let mut sums = vec![0.5_f32; rows.len() * outputs];
        forest.add(rows, trees, groups, outputs, &mut sums);
        sums.into_iter().map(|sum| u64::from(sum.to_bits())).collect()
    };
    (sums, leaves)
}

proptest! {
    #[test]
    fn kernels_find_the_leaves_of_the_walk(
        seed: u64,
        count in prop_oneof![1_usize..30, 1_usize..90],
        splits in prop_oneof![0_usize..4, 0_usize..80],
        features in 1_usize..9,
        rows in 0_usize..70,
        width in 1_usize..30,
        outputs in 1_usize..4,
        block_from in 1_usize..20,
        double: bool,
    ) {
        let mut random = Random(seed.rotate_left(32) | 1);
        let values: Vec<_> = (0..rows * width).map(|_| random.number()).collect();
        let rows = Input::Dense(Rows::new(&values, width).expect("whole rows"));
        let groups: Vec<_> = (0..count).map(|_| random.below(outputs) as u32).collect();
        let first = random.below(count);
        let some = first..first + random.below(count - first + 1);
        let outputs = (&*groups, outputs);
        let walked = Forest::Any(trees(seed, count, splits, features, double));
        let expected = results(&walked, rows, some.clone(), outputs, double);

        for_each_kernel(trees(seed, count, splits, features, double), block_from, |forest| {
            let found = results(forest, rows, some.clone(), outputs, double);
            prop_assert_eq!(&expected, &found, "{:?}", forest);
            Ok(())
        })?;
    }

    #[test]
    fn sparse_rows_have_the_results_of_dense_ones(
        seed: u64,
        count in 1_usize..40,
        splits in prop_oneof![0_usize..4, 0_usize..80],
        features in prop_oneof![1_usize..9, 1_usize..600],
        rows in 0_usize..70,
        entries in 0_usize..20,
        block_from in 1_usize..20,
        double: bool,
    ) {
        let mut random = Random(seed.rotate_left(32) | 1);
        let sparse = Sparse::new(&mut random, rows, entries, features);
        let dense = sparse.dense(3 * features);
        let dense = Input::Dense(Rows::new(&dense, 3 * features).expect("whole rows"));
        let groups = vec![0; count];
        let outputs = (&*groups, 1);
        let walked = Forest::Any(trees(seed, count, splits, features, double));
        let expected = results(&walked, dense, 0..count, outputs, double);
        let check = |forest: &Forest| {
            let slots = forest.slots(&mut budget()).expect("memory");
            let mut found = Vec::new();
            let rows = Input::Sparse(slots.place(sparse.rows(), None, &mut found));
            let found = results(forest, rows, 0..count, outputs, double);
            prop_assert_eq!(&expected, &found, "{:?}", forest);
            let mut nodes = Vec::new();
            forest.for_each_node(|tree, id, is_leaf| nodes.push((tree, id, is_leaf)));
            let mut places = vec![0; dense.len() * count];
            forest.leaf_places(rows, 0..count, &mut places);
            for (at, leaf) in expected.1.iter().enumerate() {
                let (row, tree) = (at / count, at % count);
                let place = places[tree * dense.len() + row];
                prop_assert_eq!(nodes[place as usize], (tree, *leaf as u32, true));
            }
            Ok(())
        };
        check(&walked)?;
        for_each_kernel(trees(seed, count, splits, features, double), block_from, check)?;
    }
}

/// Calls `check` with the compact form of `trees`, with narrow and with wide nodes, and each kernel.
fn for_each_kernel(
    trees: Vec<Tree>,
    block_from: usize,
    check: impl Fn(&Forest) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let chosen = Forest::new(trees, &mut budget()).expect("memory");
    let Forest::Compact(mut compact, choice) = chosen else {
        panic!("the trees have a compact form")
    };
    let kernels = || Kernel::all().into_iter().map(|kernel| Choice::of(kernel, block_from));
    for wide in [false, true] {
        if wide {
            compact.nodes = compact.nodes.widened();
        }
        for choice in kernels().chain([choice]) {
            let forest = Forest::Compact(compact, choice);
            check(&forest)?;
            let Forest::Compact(same, _) = forest else { unreachable!("it is compact") };
            compact = same;
        }
    }
    Ok(())
}

/// Random sparse rows.
struct Sparse {
    ids: Vec<u64>,
    weights: Vec<f32>,
    offsets: Vec<u32>,
}

impl Sparse {
    /// Rows of up to `entries` entries, for trees with the features that are multiples of three
    /// below 3 * `features`. Others occur too, as do large numbers.
    fn new(random: &mut Random, rows: usize, entries: usize, features: usize) -> Self {
        let mut sparse = Self { ids: Vec::new(), weights: Vec::new(), offsets: vec![0] };
        for _ in 0..rows {
            for _ in 0..random.below(entries + 1) {
                let id = random.below(3 * features + 5) as u64;
                sparse.ids.push(id + [0, 0, 0, 1 << 32][random.below(4)]);
                sparse.weights.push(random.number());
            }
            sparse.offsets.push(sparse.ids.len() as u32);
        }
        sparse
    }

    fn rows(&self) -> SparseRows<'_> {
        SparseRows::new(&self.ids, &self.weights, &self.offsets).expect("rows").truncated()
    }

    /// Dense rows: of each feature the last weight that is not missing.
    fn dense(&self, width: usize) -> Vec<f32> {
        let mut dense = vec![f32::NAN; (self.offsets.len() - 1) * width];
        for (row, range) in dense.chunks_exact_mut(width).zip(self.offsets.windows(2)) {
            for at in range[0] as usize..range[1] as usize {
                let (feature, weight) = (self.ids[at] as u32 as usize, self.weights[at]);
                if feature < width && !weight.is_nan() {
                    row[feature] = weight;
                }
            }
        }
        dense
    }
}

/// Compares the kernels with the walk for trees that need wide nodes.
fn expect_wide(of_seed: impl Fn() -> Vec<Tree>, width: usize) {
    let mut random = Random(11);
    let values: Vec<_> = (0..21 * width).map(|_| random.number()).collect();
    let rows = Input::Dense(Rows::new(&values, width).expect("whole rows"));
    let count = of_seed().len();
    let groups = vec![0; count];
    let expected = results(&Forest::Any(of_seed()), rows, 0..count, (&groups, 1), false);
    let chosen = Forest::new(of_seed(), &mut budget()).expect("memory");
    let Forest::Compact(mut compact, _) = chosen else { panic!("a compact form") };
    assert!(matches!(compact.nodes, Nodes::Wide(_)));
    for kernel in Kernel::all() {
        let forest = Forest::Compact(compact, Choice::of(kernel, 10));
        assert_eq!(expected, results(&forest, rows, 0..count, (&groups, 1), false), "{kernel:?}");
        let Forest::Compact(same, _) = forest else { unreachable!("it is compact") };
        compact = same;
    }
}

#[test]
fn a_tree_with_many_nodes_has_wide_ones() {
    expect_wide(|| vec![tree(&mut Random(7), 40_000, 5, false, false)], 15);
}

#[test]
fn a_model_with_many_features_has_wide_nodes() {
    let few = |seed| tree(&mut Random(seed), 20_000, 60_000, false, false);
    expect_wide(|| [7, 77, 777].map(few).into(), 3 * 60_000);
}

#[test]
fn vectors_that_this_processor_lacks_are_reported() {
    if cfg!(target_arch = "x86_64") && Kind::all().len() < 3 {
        // Written to stderr directly: the test harness would capture the output of print macros.
        let _ = writeln!(stderr(), "NOT TESTED: kernels of trees for AVX2 or AVX-512");
    }
}
