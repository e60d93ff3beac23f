//! Contributions of the columns of sparse rows.

use outrigger_proto::outrigger::v1::{
    FeatureMap, PredictRequest, ResponseOptions, SparseList, Treatment, Value as Feature,
    value::Kind,
};
use serde_json::{Value, json};
use tonic::Code;

use super::{explain, post};
use crate::{
    stack::{Stack, by_name, reason},
    xgboost_serving::fixture::{BIAS, Row, TREES, publish, trees_metadata},
};

const FEATURE: &str = "xgboost_features";

fn asked(model: &str, rows: &[Row<'_>]) -> PredictRequest {
    let treatment = |row: &Row<'_>| {
        let (ids, weights) = row.iter().copied().unzip();
        let kind = Some(Kind::Sparse(SparseList { ids, weights, names: Vec::new() }));
        let features =
            FeatureMap { features: [(FEATURE.into(), Feature { kind })].into() }.features;
        Treatment { id: String::new(), features }
    };
    PredictRequest {
        model: Some(by_name(model)),
        treatments: rows.iter().map(treatment).collect(),
        options: Some(ResponseOptions { contributions: true, ..ResponseOptions::default() }),
        ..PredictRequest::default()
    }
}

#[tokio::test]
async fn contributions_of_sparse_rows_are_those_of_the_columns_that_splits_use() {
    let stack = Stack::start().await;
    publish(&stack, TREES, "latest", BIAS).await;
    let rows: [Row<'_>; 3] =
        [&[(0, 9.0), (1, 1.0), (2, 2.0)], &[(2, 7.0), (2, 4.25), (7, 1.0), (1, -0.5)], &[]];
    let explained = explain(&stack, asked(TREES, &rows)).await;
    let explained = explained.expect("explained").expect("contributions");
    assert_eq!((&explained.features[..], &explained.columns[..]), (&[][..], &[1, 2][..]));
    // The mean of all leaves of a tree is -1/8. What is missing goes right, to the last leaf.
    let expected = [1.125, 2.125, 2.75, -0.375, 4.375, 2.75, 7.875, 7.875, 2.75];
    let near = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-5;
    assert_eq!((explained.margins, explained.values.len()), (1, expected.len()));
    assert!(explained.values.iter().zip(&expected).all(near), "{:?}", explained.values);
    let none = explain(&stack, asked(TREES, &[])).await.expect("explained").expect("contributions");
    assert_eq!((&none.columns[..], none.values.len()), (&[1, 2][..], 0));
    let status = explain(&stack, asked(TREES, &[&[(1, f32::INFINITY)]])).await;
    assert_eq!(reason(&status.expect_err("infinity")), "FEATURE_NOT_FINITE");
}

#[tokio::test]
async fn contributions_of_sparse_rows_have_a_json_form() {
    let stack = Stack::start().await;
    publish(&stack, TREES, "latest", BIAS).await;
    let row = json!({"ids": [1, 2], "weights": [-0.5, 4.25]});
    let (status, answer) = post(&stack, TREES, json!([{"features": {FEATURE: row}}])).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!((&answer["columns"], &answer["features"]), (&json!([1, 2]), &json!([])));
    let margins = json!([{"base": 2.75, "contributions": [-0.375, 4.375]}]);
    assert_eq!(answer["treatments"], json!([{"margins": margins}]));
}

/// Levels of a tree each of whose splits has a column of its own.
const LEVELS: i32 = 13;
const SPLITS: i32 = (1 << LEVELS) - 1;

/// The files of a package of such a tree.
fn wide() -> Vec<(String, String)> {
    let nodes = 2 * SPLITS + 1;
    let each = |of: &dyn Fn(i32) -> i32| (0..nodes).map(of).collect::<Value>();
    let of_split = |of: &dyn Fn(i32) -> i32, leaf: i32| {
        each(&|node| if node < SPLITS { of(node) } else { leaf })
    };
    let zeros = each(&|_| 0);
    let tree = json!({
        "tree_param":
            {"num_nodes": nodes.to_string(), "num_feature": "0", "size_leaf_vector": "1"},
        "left_children": of_split(&|node| 2 * node + 1, -1),
        "right_children": of_split(&|node| 2 * node + 2, -1),
        "split_indices": of_split(&|node| 3 * node, 0),
        "split_conditions": each(&|node| node % 7),
        "sum_hessian": each(&|node| 1 << (LEVELS - (node + 1).ilog2() as i32)),
        "default_left": zeros, "split_type": zeros,
        "categories": [], "categories_nodes": [], "categories_segments": [],
        "categories_sizes": [],
    });
    let model = json!({"version": [2, 1, 4], "learner": {
        "attributes": {}, "feature_names": [], "feature_types": [],
        "objective": {"name": "reg:squarederror"},
        "learner_model_param": {
            "base_score": "0", "num_feature": (3 * SPLITS).to_string(), "num_class": "0"
        },
        "gradient_booster": {"name": "gbtree", "model": {
            "gbtree_model_param": {"num_trees": "1", "num_parallel_tree": "1"},
            "iteration_indptr": [0, 1], "tree_info": [0], "trees": [tree],
        }},
    }});
    let mut metadata = trees_metadata();
    metadata["outputs"].as_array_mut().expect("outputs").truncate(2);
    vec![
        ("metadata.json".to_owned(), metadata.to_string()),
        ("xgboost/model.json".to_owned(), model.to_string()),
    ]
}

#[tokio::test]
async fn contributions_that_memory_does_not_suffice_for_are_refused() {
    // The account of answers has 25.6 MiB, and one caller gets half of it.
    let stack = Stack::with(&[("server.memory", "256MiB")]).await;
    stack.publish_files("wide", "latest", &wide()).await;
    let row: Row<'_> = &[(0, 1.0), (3, 1.0)];
    let status =
        explain(&stack, asked("wide", &[row; 100])).await.map(drop).expect_err("too many values");
    assert_eq!((status.code(), &*reason(&status)), (Code::InvalidArgument, "TOO_LARGE"));
    let explained = explain(&stack, asked("wide", &[row])).await.expect("explained");
    let explained = explained.expect("contributions");
    assert!(explained.columns.iter().copied().eq((0..SPLITS as u64).map(|split| 3 * split)));
    assert_eq!(explained.values.len(), SPLITS as usize + 1);
}
