use outrigger_core::DType;
use outrigger_run::local::{integers, tensor};
use proptest::prelude::*;

use super::*;
use crate::{
    model::tests::{call as dense, package, read, squares},
    sparse::{FM_FEATURES, XGBOOST_FEATURES},
    testing::{Entries, assert_divisible, int64, sparse},
};

fn call(inputs: impl Into<Vec<Tensor>>) -> Call {
    Call { inputs: inputs.into(), ..dense(&[], &[], &["y"]) }
}

/// Divides into parts of one row.
fn divided(inputs: impl Into<Vec<Tensor>>) -> Option<Vec<Call>> {
    parts(&call(inputs), &[&XGBOOST_FEATURES, &FM_FEATURES], 1)
}

fn value() -> impl Strategy<Value = f32> {
    prop_oneof![8 => -2.0..22.0_f32, 1 => Just(f32::NAN), 1 => Just(1.0)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn dense_rows_have_the_same_bits_in_parts(rows in prop::collection::vec([value(), value()], 0..150)) {
        let model = read(package("model.json", &squares(), None).path()).expect("a model");
        let call = dense(&[rows.len() as i64, 2], rows.as_flattened(), &[]);
        assert_divisible(&model, &call);
    }

    #[test]
    fn sparse_rows_have_the_same_bits_in_parts(
        rows in prop::collection::vec(prop::collection::vec((0..4_u64, value()), 0..5), 0..150),
    ) {
        let model = read(package("model.json", &squares(), None).path()).expect("a model");
        let rows: Vec<Entries> = rows;
        assert_divisible(&model, &call_of_all(&rows));
    }
}

/// A call for all outputs of sparse rows.
fn call_of_all(rows: &[Entries]) -> Call {
    Call { outputs: Vec::new(), ..call(sparse("xgboost_features", rows)) }
}

#[test]
fn parts_have_the_rows_of_all_inputs() {
    let rows = [vec![(7, 1.0), (8, 2.0)], vec![], vec![(9, 3.0)]];
    let x = tensor("x".into(), vec![3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let whole = call([&sparse("fm_features", &rows)[..], &[x]].concat());
    let sparse_inputs = [&XGBOOST_FEATURES, &FM_FEATURES];
    assert_eq!(super::rows(&whole, &sparse_inputs), Some(3));
    let found = parts(&whole, &sparse_inputs, 2).expect("parts");
    for (part, rows, x) in
        [(&found[0], &rows[..2], &[1.0, 2.0, 3.0, 4.0][..]), (&found[1], &rows[2..], &[5.0, 6.0])]
    {
        let x = tensor("x".into(), vec![rows.len() as i64, 2], x);
        assert_eq!(part.inputs, [&sparse("fm_features", rows)[..], &[x]].concat());
        assert_eq!((&part.outputs, part.deadline), (&whole.outputs, whole.deadline));
    }
    assert_eq!(found.len(), 2);
}

#[test]
fn inputs_that_are_not_whole_rows_are_not_divided() {
    let x = tensor("x".into(), vec![2], &[1.0, 2.0]);
    let strings = Tensor { content: Content::Strings(Vec::new()), ..x.clone() };
    let sparse_of = |ids: &[u64], weights: &[f32], lengths: &[u64]| {
        let weights = tensor("fm_features_weights".into(), vec![weights.len() as i64], weights);
        [int64("fm_features", ids), weights, int64("fm_features_lengths", lengths)].to_vec()
    };
    assert!(divided([x.clone()]).is_some() && divided(sparse_of(&[7], &[1.0], &[1])).is_some());
    let mut without_ids = sparse_of(&[], &[], &[0, 0]);
    without_ids.pop();
    for inputs in [
        vec![],
        vec![Tensor { shape: vec![], ..x.clone() }],
        vec![Tensor { shape: vec![-2], ..x.clone() }],
        vec![Tensor { shape: vec![2, -1], ..x.clone() }],
        vec![Tensor { shape: vec![3], ..x.clone() }],
        vec![Tensor { shape: vec![1 << 62, 1 << 62], ..x.clone() }],
        vec![Tensor { dtype: DType::String, ..x.clone() }],
        vec![strings],
        vec![x.clone(), integers("z".into(), vec![1], &[7])],
        sparse_of(&[7], &[1.0], &[2]),
        sparse_of(&[7], &[], &[1]),
        sparse_of(&[7], &[1.0], &[1, u64::MAX]),
        sparse_of(&[7], &[1.0], &[1, 1 << 32]),
        [sparse_of(&[7], &[1.0], &[1]), vec![x]].concat(),
        without_ids,
    ] {
        assert!(divided(inputs.clone()).is_none(), "{inputs:?}");
    }
}
