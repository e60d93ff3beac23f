//! Sums with linear models of leaves are those of their definition, for all kernels.

use std::collections::HashMap;

use super::*;
use crate::{
    AnyRows,
    linear::{LeafModel, Linear, LinearRows},
};

/// A constant, features, and their coefficients.
type Model = (f64, Vec<u32>, Vec<f64>);

/// The models of leaves, by the tree and the number of the leaf in it.
type Models = HashMap<(usize, u32), Model>;

/// Models of most leaves, of features that their trees use.
fn models(random: &mut Random, trees: &[Tree]) -> Models {
    let mut models = Models::new();
    for (number, tree) in trees.iter().enumerate() {
        let splits = tree.nodes.iter().filter(|node| !node.is_leaf());
        let used: Vec<_> = splits.map(|node| node.feature() as u32).collect();
        for leaf in tree.nodes.iter().filter(|node| node.is_leaf()) {
            if used.is_empty() || random.below(4) == 0 {
                continue;
            }
            let features: Vec<_> =
                (0..1 + random.below(3)).map(|_| used[random.below(used.len())]).collect();
            let mut number_of = || random.below(2000) as f64 / 7.0 - 140.0;
            let (constant, coefficients) = (number_of(), features.iter().map(|_| number_of()));
            let model = (constant, features.clone(), coefficients.collect());
            models.insert((number, leaf.id), model);
        }
    }
    models
}

fn linear(models: &Models, trees: &[Tree]) -> Linear {
    let (mut linear, mut before) = (Linear::default(), 0);
    for (number, tree) in trees.iter().enumerate() {
        let model = |leaf| {
            let (constant, features, coefficients) = models.get(&(number, leaf))?;
            Some(LeafModel { constant: *constant, features, coefficients })
        };
        // Trees without models may be left out.
        if tree.nodes.iter().any(|node| node.is_leaf() && model(node.id).is_some()) {
            linear.add(before, tree, model, &mut budget()).expect("models");
        }
        before += tree.nodes.len();
    }
    linear
}

/// The value of a leaf by the definition.
fn value((constant, features, coefficients): &Model, plain: f64, row: &[f32]) -> f64 {
    let of = |feature: &u32| row.get(*feature as usize).copied().unwrap_or(f32::NAN);
    if features.iter().any(|feature| of(feature).is_nan()) {
        return plain;
    }
    let terms = features.iter().zip(coefficients).map(|(feature, b)| b * f64::from(of(feature)));
    terms.fold(*constant, |sum, term| sum + term)
}

/// Sums as bits; of NaN always the same.
fn bits(sums: Vec<f64>) -> Vec<u64> {
    sums.into_iter().map(|sum| if sum.is_nan() { f64::NAN } else { sum }.to_bits()).collect()
}

proptest! {
    #[test]
    fn leaves_have_the_values_of_their_models(
        seed: u64,
        count in prop_oneof![1_usize..30, 250_usize..300],
        splits in prop_oneof![0_usize..4, 0_usize..40],
        features in 1_usize..9,
        rows in prop_oneof![0_usize..20, 0_usize..150],
        entries in 0_usize..20,
        outputs in 1_usize..4,
        block_from in 1_usize..20,
    ) {
        let mut random = Random(seed.rotate_left(32) | 1);
        let all = || trees(seed, count, splits, features, true);
        let models = models(&mut random, &all());
        let linear = linear(&models, &all());
        let groups: Vec<_> = (0..count).map(|_| random.below(outputs) as u32).collect();
        let first = random.below(count);
        let some = first..first + random.below(count - first + 1);
        let sparse = Sparse::new(&mut random, rows, entries, features);
        let (dense, width) = (sparse.dense(3 * features), 3 * features);

        let mut expected = vec![0.5; rows * outputs];
        let walked = all();
        for (row, sums) in dense.chunks_exact(width).zip(expected.chunks_exact_mut(outputs)) {
            for tree in some.clone() {
                let leaf = walked[tree].nodes[walked[tree].leaf(Row::Dense(row))];
                let plain = walked[tree].double(leaf);
                let model = models.get(&(tree, leaf.id));
                sums[groups[tree] as usize] += model.map_or(plain, |it| value(it, plain, row));
            }
        }
        let expected = bits(expected);

        let check = |forest: &Forest| {
            let slots = forest.slots(&mut budget()).expect("memory");
            let mut found = Vec::new();
            let of_slots = Input::Sparse(slots.place(sparse.rows(), None, &mut found));
            let dense = Rows::new(&dense, width).expect("whole rows");
            let forms = [(AnyRows::Dense(dense), Input::Dense(dense)), (sparse.rows().into(), of_slots)];
            for (all, rows) in forms {
                let mut sums = vec![0.5; rows.len() * outputs];
                let linear = LinearRows { linear: &linear, rows: all };
                forest.add_linear(linear, rows, some.clone(), &groups, outputs, &mut sums);
                prop_assert_eq!(&expected, &bits(sums), "{:?}", rows);
            }
            Ok(())
        };
        check(&Forest::Any(all()))?;
        for_each_kernel(all(), block_from, check)?;
    }
}
