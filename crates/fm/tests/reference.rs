//! Models and rows of any kind have the scores that the definition of a factorisation machine gives:
//! `z = b + sum_i w_i x_i + sum_(i<j) <v_i, v_j> x_i x_j`, in f64.

mod support;

use std::collections::{BTreeMap, HashMap};

use outrigger_fm::{Kind, Model, Output, Precision, Reading};
use proptest::prelude::*;
use support::{Content, Entry, Pairs, Tree, leaf, line, score, trees};

/// Columns of the trees.
const FEATURES: usize = 5;

/// A model as it is defined.
#[derive(Debug, Clone)]
struct Machine {
    softmax: bool,
    factors: usize,
    bias: Vec<f32>,
    /// For each feature and class, the weight and the vector.
    features: BTreeMap<u64, Vec<Vec<f32>>>,
    trees: Vec<Tree>,
    /// The features of leaves, by tree and leaf.
    leaves: BTreeMap<(usize, u32), u64>,
}

impl Machine {
    fn content(&self) -> Content {
        let mut leaf_mapping = String::new();
        for tree in 0..self.trees.len() {
            let pairs = self.leaves.iter().filter(|((of, _), _)| *of == tree);
            let pairs: String = pairs.map(|((_, leaf), id)| format!(" {leaf}:{id}")).collect();
            if !pairs.is_empty() {
                leaf_mapping += &format!("{tree}{pairs}\n");
            }
        }
        let state =
            |values: &[f32]| if self.softmax { vec![0.5; 2 * values.len()] } else { vec![] };
        let numbers = |classes: &[Vec<f32>]| {
            classes.iter().flat_map(|values| [values.clone(), state(values)].concat()).collect()
        };
        let bias: Vec<_> = self.bias.iter().map(|bias| vec![*bias]).collect();
        let bias: Vec<_> = numbers(&bias);
        let features = self.features.iter().map(|(id, classes)| line(id, &numbers(classes)));
        Content {
            trees: trees(&self.trees, FEATURES),
            fm: (line("bias", &bias) + &features.collect::<String>()).into_bytes(),
            leaf_mapping: leaf_mapping.into_bytes(),
        }
    }

    fn kind(&self) -> Kind {
        if self.softmax { Kind::Softmax } else { Kind::Binary }
    }

    /// The features of a row that the model knows.
    fn known(&self, (of_trees, of_machine): &(Vec<Entry>, Vec<Entry>)) -> Vec<(&[Vec<f32>], f64)> {
        let seen: HashMap<u32, f32> =
            of_trees.iter().filter(|(_, x)| !x.is_nan()).map(|(id, x)| (*id as u32, *x)).collect();
        let leaves = self.trees.iter().enumerate().filter_map(|(at, tree)| {
            let leaf = leaf(tree, |feature| seen.get(&(feature as u32)).copied());
            Some((*self.leaves.get(&(at, leaf))?, 1.0))
        });
        let all = of_machine.iter().chain(of_trees).copied().chain(leaves);
        all.filter_map(|(id, x)| Some((self.features.get(&id)?.as_slice(), f64::from(x)))).collect()
    }

    /// The margin of a class, and the sum of the magnitudes of its terms.
    fn margin(&self, known: &[(&[Vec<f32>], f64)], class: usize) -> (f64, f64) {
        let mut terms = vec![f64::from(self.bias[class])];
        for (at, (feature, x)) in known.iter().enumerate() {
            terms.push(f64::from(feature[class][0]) * x);
            for (other, y) in &known[..at] {
                let factors = feature[class][1..].iter().zip(&other[class][1..]);
                terms.extend(factors.map(|(a, b)| f64::from(*a) * f64::from(*b) * x * y));
            }
            // The squares are in the sums of the fast formula, and cancel out.
            let square = feature[class][1..].iter().map(|v| f64::from(v * v)).sum::<f64>() * x * x;
            terms.extend([square, -square]);
        }
        (terms.iter().sum(), terms.iter().map(|term| term.abs()).sum())
    }

    fn values(&self, margins: &[f64]) -> Vec<f64> {
        if !self.softmax {
            return margins.iter().map(|margin| 1.0 / (1.0 + (-margin).exp())).collect();
        }
        let largest = margins.iter().copied().fold(f64::MIN, f64::max);
        let exponentials: Vec<_> = margins.iter().map(|margin| (margin - largest).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        exponentials.iter().map(|value| value / sum).collect()
    }
}

fn number() -> impl Strategy<Value = f32> + Clone {
    prop_oneof![4 => -2.0_f32..2.0, 1 => Just(0.0), 1 => Just(-0.5)]
}

/// Ids of which most are in the model and some in the trees.
fn id() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        0_u64..12,
        Just(u64::MAX),
        (0_u64..6).prop_map(|id| id + (1 << 32)),
        (0_u64..24).prop_map(|id| id << 40),
    ]
}

fn machine() -> impl Strategy<Value = Machine> {
    let sizes = (prop_oneof![Just(0_usize), 1..5_usize, 5..19_usize], 0_usize..4, 0_usize..6);
    sizes.prop_flat_map(|(factors, classes, count)| {
        let (softmax, classes) = (classes > 0, classes.max(1));
        let of_class = prop::collection::vec(number(), 1 + factors);
        let split = (0..FEATURES, number(), any::<bool>());
        let leaves =
            prop::collection::btree_map((0..count.max(1), 3_u32..7), id(), 0..4 * count + 1);
        (
            prop::collection::vec(number(), classes),
            prop::collection::btree_map(id(), prop::collection::vec(of_class, classes), 1..30),
            prop::collection::vec(prop::array::uniform3(split), count),
            leaves,
        )
            .prop_map(move |(bias, features, trees, mut leaves)| {
                leaves.retain(|(tree, _), _| *tree < trees.len());
                Machine { softmax, factors, bias, features, trees, leaves }
            })
    })
}

fn rows() -> impl Strategy<Value = Pairs> {
    let entries = || prop::collection::vec((id(), number()), 0..12);
    let row = (entries(), entries());
    // More than are walked through the trees at once, in some cases.
    prop_oneof![
        15 => prop::collection::vec(row.clone(), 0..9),
        1 => prop::collection::vec(row, 257..260),
    ]
}

fn compare(machine: &Machine, model: &Model, rows: &Pairs) {
    for (precision, part) in [(Precision::Single, 5e-6), (Precision::Double, 1e-7)] {
        let margins = score(model, rows, Output::Margin, precision);
        let values = score(model, rows, Output::Value, precision);
        let classes = machine.bias.len();
        for (at, row) in rows.iter().enumerate() {
            let known = machine.known(row);
            let expected: Vec<_> =
                (0..classes).map(|class| machine.margin(&known, class)).collect();
            let exact: Vec<_> = expected.iter().map(|(margin, _)| *margin).collect();
            let largest = expected.iter().map(|(_, size)| *size).fold(0.0, f64::max);
            for (class, value) in machine.values(&exact).iter().enumerate() {
                let (margin, size) = expected[class];
                let found = f64::from(margins[at * classes + class]);
                assert!((found - margin).abs() <= part * size, "{found}, {margin}: {row:?}");
                let found = f64::from(values[at * classes + class]);
                assert!(
                    (found - value).abs() <= part * (1.0 + largest),
                    "{found}, {value}: {row:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn scores_are_those_of_the_definition(machine in machine(), rows in rows()) {
        let content = machine.content();
        let model = content.read(&Reading::new(machine.kind())).expect("a model");
        prop_assert_eq!(model.factors(), machine.factors);
        compare(&machine, &model, &rows);
        // Nothing is skipped, and the scores are the same.
        let lenient = Reading { lenient: true, ..Reading::new(machine.kind()) };
        match content.read(&lenient) {
            Ok(model) => {
                prop_assert_eq!(model.skipped().count, 0);
                compare(&machine, &model, &rows);
            }
            // XGBoost Serving has no binary model with vectors of length 0.
            Err(error) => prop_assert!(!machine.softmax && machine.factors == 0, "{}", error),
        }
    }
}

#[test]
fn a_missing_value_does_not_hide_an_earlier_one_and_makes_the_score_of_the_machine_nan() {
    let trees = vec![[(0, 0.5, true); 3]];
    let leaves = BTreeMap::from([((0, 3), 10), ((0, 6), 11)]);
    let features =
        BTreeMap::from([(10, vec![vec![1.0]]), (11, vec![vec![2.0]]), (5, vec![vec![1.0]])]);
    let machine = Machine { softmax: false, factors: 0, bias: vec![0.0], features, trees, leaves };
    let model = machine.content().read(&Reading::new(Kind::Binary)).expect("a model");
    let margins = |entries: &[Entry]| {
        score(&model, &[(entries.to_vec(), vec![])], Output::Margin, Precision::Single)
    };
    assert_eq!(margins(&[]), [1.0]);
    assert_eq!(margins(&[(0, 1.0)]), [2.0]);
    assert_eq!(margins(&[(0, f32::NAN)]), [1.0]);
    assert_eq!(margins(&[(0, 1.0), (0, f32::NAN)]), [2.0]);
    assert_eq!(margins(&[(0, 1.0), (0, 0.0)]), [1.0]);
    assert!(margins(&[(5, f32::NAN)])[0].is_nan());
}
