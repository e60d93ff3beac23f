use std::fs;

use outrigger_run::{Framework, layouts};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{
    FRAMEWORKS,
    model::tests::{file, package, squares},
    testing::fixture,
};

/// Files of XGBoost Serving, with a machine of this fixture.
fn files_with(fm: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, content) in
        [(MODEL, "trees.json"), ("deploy.fm", fm), ("deploy.leaf_mapping", "leaf_mapping")]
    {
        fs::write(directory.path().join(name), fixture(content)).expect("a file");
    }
    directory
}

/// The description of the model in a directory, by its files.
fn described(directory: &TempDir) -> Result<Value, Failure> {
    let layouts = layouts(&FRAMEWORKS);
    let found = layouts.describer(|name| directory.path().join(name).is_file());
    let (_, describer) = found.expect("a known model");
    let text = (describer.describe)(directory.path())?;
    Ok(serde_json::from_str(&text).expect("JSON"))
}

/// The framework that a description names accepts the model with its signature.
fn accepted(metadata: &Value, directory: &TempDir) {
    let is_named = |framework: &&Framework| metadata["framework"] == framework.name;
    let framework = FRAMEWORKS.iter().find(is_named).expect("a framework");
    let signature = metadata["signature"].as_str().unwrap_or("serving_default");
    let interface =
        (framework.interface)(&directory.path().into(), signature).expect("an interface");
    for (kind, specs) in [("inputs", &interface.inputs), ("outputs", &interface.outputs)] {
        for each in metadata[kind].as_array().expect("a list") {
            assert!(specs.iter().any(|spec| each["tensor"] == *spec.name), "{each}");
        }
    }
}

#[test]
fn trees_have_the_outputs_of_xgboost_serving() {
    let directory = package(MODEL, &squares(), None);
    let metadata = described(&directory).expect("a description");
    assert_eq!(
        (&metadata["framework"], &metadata["signature"]),
        (&json!("xgboost"), &json!("sparse"))
    );
    assert_eq!(
        metadata["inputs"],
        json!([{
            "tensor": "xgboost_features", "weights": "xgboost_features_weights",
            "lengths": "xgboost_features_lengths", "entity": "joined", "dtype": "int64",
            "features": [{
                "name": "xgboost_features", "entity": "treatment", "max": 2048, "default": [],
                "allow_non_finite": true,
            }],
        }])
    );
    assert_eq!(
        metadata["outputs"],
        json!([
            {"tensor": "value", "name": "value", "kind": "per_treatment"},
            {"tensor": "margin", "name": "margin", "kind": "per_treatment"},
            {"tensor": "leaf", "name": "leaf", "kind": "per_treatment", "width": 2,
             "score": {"column": 0}},
        ])
    );
    accepted(&metadata, &directory);
}

#[test]
fn options_beside_the_trees_count() {
    let directory = package(MODEL, &squares(), Some(r#"{"iterations": [0, 1]}"#));
    let metadata = described(&directory).expect("a description");
    assert_eq!(metadata["outputs"][2], output_of("leaf", 1));
    let directory = package(MODEL, &squares(), Some(r#"{"iterations": "best"}"#));
    let failure = described(&directory).expect_err("it has no best iteration");
    assert!(failure.message.contains("no best iteration"), "{failure}");
}

#[test]
fn the_machine_decides_about_the_framework_and_its_classes() {
    for (fm, framework, classes) in [
        ("serving.fm", "gbdt_fm", 1),
        ("single.bin", "gbdt_fm", 1),
        ("softmax.fm", "gbdt_fm_softmax", 3),
    ] {
        let directory = files_with(fm);
        let metadata = described(&directory).expect("a description");
        assert_eq!(metadata["framework"], framework, "{fm}");
        let inputs = metadata["inputs"].as_array().expect("a list").iter();
        let inputs: Vec<_> = inputs.map(|input| &input["features"][0]).collect();
        assert_eq!(inputs[0]["name"], "xgboost_features");
        assert_eq!(
            (&inputs[1]["name"], &inputs[1]["allow_non_finite"]),
            (&json!("fm_features"), &json!(false))
        );
        assert_eq!(metadata["outputs"], json!([output_of("score", classes)]), "{fm}");
        accepted(&metadata, &directory);
    }
}

#[test]
fn files_that_are_no_model_are_refused() {
    let directory = files_with("serving.fm");
    fs::write(directory.path().join("deploy.fm"), "bias 1 2 3 4 5\n").expect("a file");
    let failure = described(&directory).expect_err("5 numbers of a bias");
    assert!(failure.message.contains("line 1: it has 6 fields"), "{failure}");
    let linear = file("reg:squarederror", &[], json!({}));
    let directory = package(MODEL, &linear["learner"], None);
    assert!(described(&directory).is_err(), "it is no model");
}
