mod contributions;

use std::{fs, path::Path, time::Duration};

use outrigger_core::{Content, ElementType, Reason, Uplift};
use outrigger_run::{PackagedModel, local::Model as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use crate::{
    XGBOOST, files,
    testing::{Entries, assert_divisible, int64, sparse},
};

/// A tree with one split: rows whose feature `column` is less than `threshold` score `left`, others
/// `right`. A missing value counts as less.
pub(crate) fn stump(column: usize, threshold: f32, left: f32, right: f32) -> Value {
    json!({
        "tree_param": {"num_nodes": "3", "num_feature": "2", "size_leaf_vector": "1"},
        "left_children": [1, -1, -1], "right_children": [2, -1, -1],
        "split_indices": [column, 0, 0], "split_conditions": [threshold, left, right],
        "default_left": [1, 0, 0], "split_type": [0, 0, 0], "categories": [],
        "categories_nodes": [], "categories_segments": [], "categories_sizes": [],
        "sum_hessian": [4.0, 1.0, 3.0],
    })
}

/// A model of two features and two iterations, in XGBoost's JSON.
pub(crate) fn file(objective: &str, names: &[&str], attributes: Value) -> Value {
    json!({"version": [2, 1, 4], "learner": {
        "attributes": attributes, "feature_names": names, "feature_types": [],
        "objective": {"name": objective},
        "learner_model_param": {"base_score": "5E-1", "num_feature": "2", "num_class": "0"},
        "gradient_booster": {"name": "gbtree", "model": {
            "gbtree_model_param": {"num_trees": "2", "num_parallel_tree": "1"},
            "iteration_indptr": [0, 1, 2], "tree_info": [0, 0],
            "trees": [stump(0, 1.0, 1.0, 2.0), stump(1, 10.0, 0.25, 0.5)],
        }},
    }})
}

pub(crate) fn package(name: &str, model: &Value, options: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(name), model.to_string()).expect("a file");
    if let Some(options) = options {
        fs::write(directory.path().join("options.json"), options).expect("a file");
    }
    directory
}

/// Reads the model in a directory.
pub(crate) fn read(directory: &Path) -> Result<Model, Failure> {
    Model::new(files::model(directory, false)?, &Scoring::read(directory)?)
}

pub(crate) fn squares() -> Value {
    file("reg:squarederror", &[], json!({}))
}

fn model(options: Option<&str>) -> Model {
    read(package("model.json", &squares(), options).path()).expect("a model")
}

pub(crate) fn call(shape: &[i64], values: &[f32], outputs: &[&str]) -> Call {
    let inputs = vec![tensor("features".into(), shape.to_vec(), values)];
    let outputs = outputs.iter().map(|name| Arc::from(*name)).collect();
    let deadline = Instant::now() + Duration::from_secs(1);
    Call::new(inputs, outputs, deadline)
}

/// The margins of two rows: one whose features are less than the thresholds, one whose first feature
/// is missing and whose second one is -1.
fn margins(model: &Model) -> Vec<f32> {
    margins_of(model, &[0.0, 20.0, f32::NAN, -1.0])
}

/// The margins of two rows.
fn margins_of(model: &Model, rows: &[f32; 4]) -> Vec<f32> {
    let outputs = model.run(call(&[2, 2], rows, &["margin"])).expect("scores");
    floats(&outputs[0]).expect("floats").into_owned()
}

#[test]
fn outputs_have_the_names_and_the_order_of_the_call() {
    let model = read(package("model.json", &file("binary:logistic", &[], json!({})), None).path())
        .expect("a model");
    let rows = |outputs: &[&str]| call(&[1, 2], &[5.0, 5.0], outputs);
    let outputs = model.run(rows(&["margin", "value"])).expect("scores");
    let names: Vec<_> = outputs.iter().map(|output| &*output.name).collect();
    assert_eq!((names, &outputs[0].shape), (vec!["margin", "value"], &vec![1]));
    let of = |at: usize| floats(&outputs[at]).expect("floats")[0];
    assert_eq!(of(0), 2.25);
    assert!((of(1) - 1.0 / (1.0 + (-2.25_f32).exp())).abs() < 1e-6, "{}", of(1));
    let all = model.run(rows(&[])).expect("scores");
    let names: Vec<_> = all.iter().map(|output| &*output.name).collect();
    assert_eq!(names, ["value", "margin", "leaf"]);
}

#[test]
fn leaves_are_integers() {
    let rows = || call(&[2, 2], &[0.0, 20.0, 5.0, -1.0], &["leaf"]);
    for (options, shape, leaves) in
        [(None, &[2, 2][..], &[1, 2, 2, 1][..]), (Some(r#"{"iterations": [1, 2]}"#), &[2], &[2, 1])]
    {
        let model = model(options);
        let outputs = model.run(rows()).expect("leaves");
        let content = leaves.iter().flat_map(|leaf| i32::to_le_bytes(*leaf)).collect();
        let expected = Tensor {
            name: "leaf".into(),
            dtype: DType::Int32,
            shape: shape.to_vec(),
            content: Content::Bytes(content),
        };
        assert_eq!(outputs, [expected]);
        let interface = model.interface("serving_default").expect("the signature");
        let leaf = interface.output("leaf").expect("an output");
        let sizes = [&[-1], &shape[1..]].concat();
        assert_eq!((&leaf.shape, &leaf.dtype), (&Shape::of(&sizes), &DType::Int32.into()));
    }
}

#[test]
fn explanations_take_the_same_calls_as_runs() {
    let refused = model(None).explain(call(&[1, 3], &[1.0; 3], &[]), &|| true);
    let refused = refused.expect_err("three columns");
    assert!(refused.to_string().contains("rows of 2 columns"), "{refused}");
}

#[test]
fn a_model_of_several_classes_has_an_output_for_each() {
    let classes = |objective| {
        let mut file = file(objective, &[], json!({}));
        file["learner"]["learner_model_param"]["num_class"] = "2".into();
        let booster = &mut file["learner"]["gradient_booster"]["model"];
        booster["tree_info"] = json!([0, 1]);
        booster["iteration_indptr"] = json!([0, 2]);
        read(package("model.json", &file, None).path()).expect("a model")
    };
    let rows = call(&[2, 2], &[0.0, 20.0, 5.0, -1.0], &["margin"]);
    let probabilities = classes("multi:softprob");
    let margins = probabilities.run(rows.clone()).expect("margins").remove(0);
    assert_eq!(margins.shape, [2, 2]);
    assert_eq!(*floats(&margins).expect("floats"), [1.5, 1.0, 2.5, 0.75]);
    let shape = |model: &Model, output| {
        let interface = model.interface("serving_default").expect("the signature");
        interface.output(output).expect("an output").shape.clone()
    };
    assert_eq!(shape(&probabilities, "value"), Shape::of(&[-1, 2]));
    let class = classes("multi:softmax");
    assert_eq!(shape(&class, "value"), Shape::of(&[-1]));
    assert_eq!(shape(&class, "margin"), Shape::of(&[-1, 2]));
}

#[test]
fn iterations_and_the_missing_value_are_those_of_the_options() {
    assert_eq!(margins(&model(None)), [2.0, 1.75]);
    assert_eq!(margins(&model(Some(r#"{"iterations": [0, 1]}"#))), [1.5, 1.5]);
    assert_eq!(margins(&model(Some(r#"{"iterations": [1, 2]}"#))), [1.0, 0.75]);
    assert_eq!(margins(&model(Some(r#"{"missing": 20}"#))), [1.75, 1.75]);
    let early = file("reg:squarederror", &[], json!({"best_iteration": "0"}));
    let early = read(package("model.json", &early, Some(r#"{"iterations": "best"}"#)).path());
    assert_eq!(margins(&early.expect("a model")), [1.5, 1.5]);
}

#[test]
fn iterations_that_the_model_does_not_have_are_refused() {
    for (options, problem) in [
        (r#"{"iterations": "best"}"#, "the model has no best iteration"),
        (r#"{"iterations": [0, 3]}"#, "iterations [0, 3] are not in 0..2"),
        (r#"{"iterations": [1, 1]}"#, "iterations [1, 1] are not in 0..2"),
    ] {
        let directory = package("model.json", &squares(), Some(options));
        let failure = read(directory.path()).expect_err(options);
        assert!(failure.message.ends_with(problem), "{failure}");
    }
}

#[test]
fn the_interface_has_the_columns_of_the_model() {
    let named = file("reg:squarederror", &["age", "price"], json!({}));
    let model = read(package("deploy.model", &named, None).path()).expect("a model");
    let interface = model.interface("serving_default").expect("the signature");
    let features = interface.input("features").expect("the input");
    assert_eq!(
        (&features.shape, &features.dtype),
        (&Shape::of(&[-1, 2]), &ElementType::Known(DType::Float32))
    );
    let columns: Vec<_> = features.columns.iter().map(|name| &**name).collect();
    assert_eq!(columns, ["age", "price"]);
    assert_eq!(interface.output("value").expect("an output").shape, Shape::of(&[-1]));
    assert!(model.interface("other").is_none());
}

#[test]
fn calls_that_do_not_fit_the_model_are_errors() {
    let model = model(None);
    let strings = Tensor {
        content: Content::Strings(Vec::new()),
        ..tensor("features".into(), vec![0, 2], &[])
    };
    for (call, problem) in [
        (call(&[1, 3], &[1.0; 3], &[]), "rows of 2 columns"),
        (call(&[2], &[1.0; 2], &[]), "rows of 2 columns"),
        (call(&[1, 2], &[1.0; 3], &[]), "whole rows"),
        (call(&[1, 2], &[1.0; 2], &["other"]), "no output other"),
        (Call { inputs: vec![strings], ..call(&[0, 2], &[], &[]) }, "must be float32"),
        (Call { inputs: vec![], ..call(&[0, 2], &[], &[]) }, "no input features"),
    ] {
        let error = model.run(call).expect_err(problem).to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_file_that_is_no_model_is_refused_with_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let failure = read(directory.path()).expect_err("nothing there");
    assert!(failure.message.contains("model.ubj or model.json"), "{failure}");
    let directory = package("model.ubj", &json!({"learner": 1}), None);
    let failure = read(directory.path()).expect_err("no model");
    assert!(failure.message.starts_with("model.ubj: "), "{failure}");
}

#[test]
fn an_interface_is_read_without_the_trees() {
    let mut model = squares();
    let package = package("model.json", &model, None);
    let read_interface = |directory: &Path| (XGBOOST.interface)(&directory.into(), SIGNATURE);
    let loaded = crate::load(&package.path().into()).expect("a model").interface(SIGNATURE);
    assert_eq!(read_interface(package.path()).ok(), loaded);
    // A tree whose root is its own child is found when trees are read, and not before.
    model["learner"]["gradient_booster"]["model"]["trees"][1]["left_children"][0] = 0.into();
    fs::write(package.path().join("model.json"), model.to_string()).expect("a file");
    assert_eq!(read_interface(package.path()).ok(), loaded);
    assert!(crate::load(&package.path().into()).is_err());
}

#[test]
fn an_interface_is_refused_with_the_settings_that_the_model_does_not_fit() {
    let package = package("model.json", &squares(), Some(r#"{"iterations": [0, 3]}"#));
    let failure =
        (XGBOOST.interface)(&package.path().into(), SIGNATURE).expect_err("two iterations");
    assert!(failure.message.contains("[0, 3] are not in 0..2"), "{failure}");
    let failure = (XGBOOST.interface)(&package.path().into(), "other").expect_err("one signature");
    assert!(failure.message.contains("no signature \"other\""), "{failure}");
}

/// A call with sparse rows, for margins.
fn sparse_call(rows: &[Entries]) -> Call {
    Call { inputs: sparse("xgboost_features", rows).into(), ..call(&[], &[], &["margin"]) }
}

#[test]
fn sparse_rows_are_scored_as_dense_ones() {
    let rows = [
        vec![(0, 0.0), (1, 20.0)],
        vec![(1, -1.0)],
        vec![(1, 20.0), (7, 1.0), (0, f32::NAN), (1, 3.0), (1, -1.0)],
        vec![((1 << 32) + 1, 20.0)],
        // XGBoost takes a row with an entry for each column, by number, for complete.
        vec![(1, 20.0), (1, -1.0)],
    ];
    for (options, expected) in [
        (None, [2.0, 1.75, 1.75, 1.75, 2.75]),
        (Some(r#"{"truncate_ids": true}"#), [2.0, 1.75, 1.75, 2.0, 2.75]),
        (Some(r#"{"missing": 20, "iterations": [1, 2]}"#), [0.75; 5]),
    ] {
        assert_divisible(&model(options), &sparse_call(&rows));
        let outputs = model(options).run(sparse_call(&rows)).expect("scores");
        assert_eq!(*floats(&outputs[0]).expect("floats"), expected, "{options:?}");
    }
    let leaves = Call { outputs: vec!["leaf".into()], ..sparse_call(&rows[..1]) };
    let leaves = model(None).run(leaves).expect("leaves");
    assert_eq!(leaves, model(None).run(call(&[1, 2], &[0.0, 20.0], &["leaf"])).expect("leaves"));
}

#[test]
fn a_call_may_limit_the_trees() {
    // Three iterations, in which the margin has two trees.
    let mut file = squares();
    let booster = &mut file["learner"]["gradient_booster"]["model"];
    let sums = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
    booster["trees"] = sums.map(|sum| stump(0, 1.0, sum, 0.0)).to_vec().into();
    booster["tree_info"] = vec![0; 6].into();
    booster["iteration_indptr"] = [0, 2, 4, 6].to_vec().into();
    booster["gbtree_model_param"] = json!({"num_trees": "6", "num_parallel_tree": "2"});
    let rows = [vec![(0, 0.0)], vec![(0, 9.0)], vec![]];
    let limited = |limit: &[u64], outputs: &[&str]| {
        let mut call = sparse_call(&rows);
        call.inputs.push(int64("ntree_limit", limit));
        call.outputs = outputs.iter().map(|name| Arc::from(*name)).collect();
        call
    };
    let model = |options| read(package("model.json", &file, options).path()).expect("a model");
    let (all, last) = (model(None), model(Some(r#"{"iterations": [1, 3]}"#)));
    for (model, limit, sum) in [
        (&all, 0, 63.0),
        (&all, 1, 63.0),
        (&all, 2, 3.0),
        (&all, 3, 3.0),
        (&all, 4, 15.0),
        (&all, 6, 63.0),
        (&all, u64::MAX, 63.0),
        (&last, 0, 60.0),
        (&last, 2, 12.0),
        (&last, 4, 60.0),
    ] {
        let call = limited(&[limit], &["margin"]);
        assert_divisible(model, &call);
        let outputs = model.run(call).expect("scores");
        let expected = [0.5 + sum, 0.5, 0.5 + sum];
        assert_eq!(*floats(&outputs[0]).expect("floats"), expected, "{limit}");
    }
    let leaves = |model: &Model, limit: u64| {
        let call = limited(&[limit], &["leaf"]);
        assert_divisible(model, &call);
        model.run(call).expect("leaves").remove(0)
    };
    // The rows end left, right and left of the root, whose children are the nodes 1 and 2.
    for (model, counted, limit, trees) in
        [(&all, 2, 2, 6), (&all, 2, 3, 6), (&all, 6, 9, 6), (&last, 2, 2, 4), (&last, 4, 0, 4)]
    {
        let found = leaves(model, limit);
        let rows = [1, 2, 1].map(|leaf| [vec![leaf; counted], vec![-1; trees - counted]].concat());
        let bytes = rows.concat().into_iter().flat_map(i32::to_le_bytes);
        assert_eq!(found.shape, [3, size(trees)], "{limit}");
        assert_eq!(found.content, Content::Bytes(bytes.collect()), "{limit}");
    }
    for refused in [&[][..], &[1, 2]] {
        let error = all.run(limited(refused, &["margin"])).expect_err("not one number").to_string();
        assert!(error.contains("ntree_limit must be one number"), "{error}");
    }
}

#[test]
fn a_signature_has_sparse_rows() {
    let model = model(None);
    let interface = model.interface("sparse").expect("the signature");
    let inputs: Vec<_> = interface.inputs.iter().map(|input| &*input.name).collect();
    let expected =
        ["ntree_limit", "xgboost_features", "xgboost_features_lengths", "xgboost_features_weights"];
    assert_eq!(inputs, expected);
    let dense = model.interface("serving_default").expect("the signature");
    assert_eq!(interface.outputs, dense.outputs);
    let package = package("model.json", &squares(), None);
    let mut packaged = PackagedModel::from(package.path());
    assert_eq!((XGBOOST.interface)(&packaged, "sparse"), Ok(interface));
    packaged.uplift = Some(Arc::new(Uplift::Control([("f0".to_owned(), None)].into())));
    let uplift = (XGBOOST.interface)(&packaged, "sparse").expect_err("dense rows only");
    let message = "an uplift model, whose rows are dense, has no signature \"sparse\"";
    assert_eq!(uplift.message, message);
}

#[test]
fn sparse_rows_that_xgboost_refuses_are_errors() {
    let infinite = sparse_call(&[vec![(0, 1.0)], vec![(1, f32::INFINITY)]]);
    assert!(model(None).divide(&infinite, 1).is_none(), "the error has the row of the whole call");
    let refused = [
        model(None).run(infinite.clone()).expect_err("infinity"),
        model(None).explain(infinite, &|| true).expect_err("infinity"),
    ];
    for error in refused {
        assert_eq!(error.reason(), Reason::FeatureNotFinite);
        assert!(error.to_string().contains("row 1: the feature 1 is infinite"), "{error}");
    }
}
