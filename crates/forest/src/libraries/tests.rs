use std::{fs, sync::Arc, time::Duration};

use outrigger_core::{Content, DType, Shape, Tensor};
use outrigger_run::{
    Call,
    local::{floats, tensor},
};
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use crate::load;

/// One split, whose sum is the margin.
pub(crate) const LIGHTGBM_FILE: &str = "tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx=1
objective=binary sigmoid:1
feature_names=age price

Tree=0
num_leaves=2
num_cat=0
split_feature=1
threshold=0.5
decision_type=2
left_child=-1
right_child=-2
leaf_value=-1 0

end of trees
";

pub(crate) const CATBOOST_FILE: &str = r#"{"features_info": {"float_features": [
{"feature_id": "age", "feature_index": 0, "flat_feature_index": 0,
 "nan_value_treatment": "AsIs"},
{"feature_id": "price", "feature_index": 1, "flat_feature_index": 1,
 "nan_value_treatment": "AsIs"}]},
"model_info": {"params": {"loss_function": {"type": "MultiClass"}}},
"oblivious_trees": [{"leaf_values": [1, 2, 3, 3],
"splits": [{"border": 0.5, "float_feature_index": 1}]}], "scale_and_bias": [1, [0.25, 0]]}"#;

fn package(name: &str, content: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(name), content).expect("a file");
    directory
}

/// The outputs for two rows.
fn run(directory: &Path, outputs: &[&str]) -> Vec<Tensor> {
    let inputs = vec![tensor("features".into(), vec![2, 2], &[9.0, 0.5, 9.0, 0.75])];
    let outputs = outputs.iter().map(|name| Arc::from(*name)).collect();
    let call = Call::new(inputs, outputs, Instant::now() + Duration::from_secs(1));
    load(&directory.into()).expect("a model").run(call).expect("scores")
}

#[test]
fn a_model_of_lightgbm_has_the_outputs_of_any_tree_model() {
    let package = package("model.txt", LIGHTGBM_FILE);
    let outputs = run(package.path(), &["margin", "value"]);
    assert_eq!(*floats(&outputs[0]).expect("floats"), [-1.0, 0.0]);
    assert_eq!(*floats(&outputs[1]).expect("floats"), [(1.0 / (1.0 + 1.0_f64.exp())) as f32, 0.5]);
    let interface =
        (LIGHTGBM.interface)(&package.path().into(), "serving_default").expect("an interface");
    let features = interface.input("features").expect("the input");
    assert_eq!(features.shape, Shape::of(&[-1, 2]));
    let columns: Vec<_> = features.columns.iter().map(|name| &**name).collect();
    assert_eq!(columns, ["age", "price"]);
    let sparse = (LIGHTGBM.interface)(&package.path().into(), "sparse");
    assert!(sparse.is_err(), "a feature that a sparse row lacks is zero in LightGBM");
}

#[test]
fn a_package_may_declare_float64() {
    // The threshold and the number above it are the same in f32.
    let close = LIGHTGBM_FILE.replace("threshold=0.5", "threshold=1700000000.5");
    let rows = [0.0, 1_700_000_000.5, 0.0, 1_700_000_001.0];
    for (name, content, framework, margins) in [
        ("model.txt", &*close, LIGHTGBM, &[-1.0, 0.0][..]),
        ("model.json", CATBOOST_FILE, CATBOOST, &[3.25, 3.0, 3.25, 3.0]),
    ] {
        let package = package(name, content);
        let model = PackagedModel { is_double: true, ..package.path().into() };
        let interface = (framework.interface)(&model, "serving_default").expect("an interface");
        assert_eq!(interface.input("features").expect("an input").dtype, DType::Float64.into());
        let bytes = rows.iter().flat_map(|value: &f64| value.to_le_bytes()).collect();
        let content = Content::Bytes(bytes);
        let name = "features".into();
        let shape = vec![2, 2];
        let tensor = Tensor { name, dtype: DType::Float64, shape, content };
        let deadline = Instant::now() + Duration::from_secs(1);
        let call = Call::new(vec![tensor], vec!["margin".into()], deadline);
        let loaded = load(&model).expect("a model");
        assert_eq!(loaded.interface("serving_default"), Some(interface));
        assert_eq!(*floats(&loaded.run(call).expect("scores")[0]).expect("floats"), *margins);
    }
}

#[test]
fn a_model_of_catboost_may_have_several_classes() {
    let package = package("model.json", CATBOOST_FILE);
    let margins = run(package.path(), &["margin"]).remove(0);
    assert_eq!(margins.shape, [2, 2]);
    assert_eq!(*floats(&margins).expect("floats"), [1.25, 2.0, 3.25, 3.0]);
    let interface =
        (CATBOOST.interface)(&package.path().into(), "serving_default").expect("an interface");
    assert_eq!(interface.output("value").expect("an output").shape, Shape::of(&[-1, 2]));
    assert!((CATBOOST.interface)(&package.path().into(), "other").is_err());
    let sparse = (CATBOOST.interface)(&package.path().into(), "sparse").expect_err("dense rows");
    assert_eq!(sparse.message, "a model of catboost has no signature \"sparse\"");
}

#[test]
fn a_file_of_another_library_is_refused_with_its_framework() {
    let cases = [
        (LIGHTGBM, "model.txt", CATBOOST_FILE, "a model of CatBoost, not of LightGBM"),
        (XGBOOST, "model.json", CATBOOST_FILE, "its framework is catboost"),
        (CATBOOST, "model.json", LIGHTGBM_FILE, "its framework is lightgbm"),
    ];
    for (framework, name, content, problem) in cases {
        let package = package(name, content);
        let refused = (framework.interface)(&package.path().into(), "serving_default");
        let failure = refused.expect_err(problem);
        assert!(failure.message.contains(problem), "{failure}");
    }
    // The engine reads the first of several files, and so does the gate.
    let package = package("model.txt", LIGHTGBM_FILE);
    fs::write(package.path().join("model.json"), CATBOOST_FILE).expect("a file");
    assert!((LIGHTGBM.interface)(&package.path().into(), "serving_default").is_err());
}

#[test]
fn catboosts_binary_format_is_refused_with_the_way_to_convert_it() {
    let package = package("model.cbm", "CBM1....");
    let refused = (CATBOOST.interface)(&package.path().into(), "serving_default");
    let failure = refused.expect_err("the binary format");
    assert!(failure.message.starts_with("model.cbm: "), "{failure}");
    assert!(failure.message.contains("save_model(\"model.json\", format=\"json\")"), "{failure}");
}
