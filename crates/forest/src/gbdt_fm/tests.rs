use std::{collections::HashMap, fs, time::Duration};

use outrigger_core::{ElementType, Reason, Shape, Uplift};
use outrigger_run::{
    StageTimes,
    local::{Model as _, floats},
    memory_to_read,
};
use outrigger_testkit::tables;
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;
use crate::{
    XGBOOST, load,
    testing::{Entries, assert_divisible, fixture, sparse},
};

/// The files of a model of the fixtures, in the directory `directory` of a package.
fn package(fm: &str, leaf_mapping: &str, options: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, content: Vec<u8>| {
        fs::write(directory.path().join(name), content).expect("a file");
    };
    write("deploy.model", fixture("trees.json"));
    write("deploy.fm", fixture(fm));
    write("deploy.leaf_mapping", fixture(leaf_mapping));
    if let Some(options) = options {
        write("options.json", options.into());
    }
    directory
}

fn model(fm: &str, options: Option<&str>) -> GbdtFm {
    let leaf_mapping = if fm == "lenient.fm" { "lenient.leaf_mapping" } else { "leaf_mapping" };
    read(package(fm, leaf_mapping, options).path()).expect("a model")
}

/// A row of pairs `ID:WEIGHT`.
fn row(pairs: &str) -> Entries {
    let entry = |pair: &str| {
        let (id, weight) = pair.split_once(':').expect("a pair");
        (id.parse().expect("an id"), weight.parse().expect("a weight"))
    };
    pairs.split_whitespace().map(entry).collect()
}

fn call(inputs: impl IntoIterator<Item = Tensor>, outputs: &[&str]) -> Call {
    let outputs = outputs.iter().map(|name| Arc::from(*name)).collect();
    let deadline = Instant::now() + Duration::from_secs(1);
    Call::new(inputs.into_iter().collect(), outputs, deadline)
}

/// The rows of the fixtures.
fn rows() -> Vec<Tensor> {
    let text = String::from_utf8(fixture("rows")).expect("text");
    let parts = text.lines().map(|line| line.split_once('|').expect("two parts"));
    let (of_trees, of_machine): (Vec<_>, Vec<_>) = parts.map(|(a, b)| (row(a), row(b))).unzip();
    [sparse("xgboost_features", &of_trees), sparse("fm_features", &of_machine)].concat()
}

/// The expected scores of these rows.
fn expected(name: &str) -> HashMap<String, Vec<f32>> {
    let text = String::from_utf8(fixture(&format!("{name}.txt"))).expect("text");
    let tables = tables::read(&text).into_iter();
    tables.map(|(name, (_, values))| (name, values)).collect()
}

#[test]
fn scores_are_those_of_the_reference_in_both_precisions() {
    for (fm, classes) in [("serving", 1), ("factors0", 1), ("softmax", 3), ("softmax0", 3)] {
        let expected = expected(fm);
        for (precision, options) in [
            ("single", None),
            ("single", Some(r#"{"precision": "float32"}"#)),
            ("double", Some(r#"{"precision": "float64"}"#)),
        ] {
            let model = model(&format!("{fm}.fm"), options);
            assert_divisible(&model, &call(rows(), &["margin", "score"]));
            let outputs = model.run(call(rows(), &["margin", "score"])).expect("scores");
            let margins = floats(&outputs[0]).expect("floats");
            assert_eq!(*margins, expected[&format!("{precision}-margin")], "{fm}: {precision}");
            let scores = floats(&outputs[1]).expect("floats");
            let values = &expected[&format!("{precision}-value")];
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-7;
            assert!(scores.iter().zip(values).all(near), "{fm}: {precision}");
            let count = (values.len() / classes) as i64;
            let shape = if classes == 1 { vec![count] } else { vec![count, classes as i64] };
            assert_eq!(outputs[1].shape, shape);
        }
    }
}

#[test]
fn the_lenient_mode_reads_what_is_refused_otherwise() {
    let expected = expected("lenient");
    let outputs = model("lenient.fm", Some(r#"{"lenient": true}"#)).run(call(rows(), &["margin"]));
    let margins = outputs.expect("scores").remove(0);
    assert_eq!(*floats(&margins).expect("floats"), expected["single-margin"]);
    let remark = model("lenient.fm", Some(r#"{"lenient": true}"#)).remark().expect("a remark");
    let first = "files: 16; of the first one, the FM file is invalid in line 4: the line is empty";
    assert!(remark.contains(first), "{remark}");
    assert_eq!(model("serving.fm", Some(r#"{"lenient": true}"#)).remark(), None);
    let strict = package("lenient.fm", "leaf_mapping", None);
    let failure = read(strict.path()).expect_err("a strict reading");
    assert!(failure.message.contains("line 4: the line is empty"), "{failure}");
}

#[test]
fn the_features_of_the_machine_alone_may_be_left_out() {
    let model = model("serving.fm", None);
    let inputs = sparse("xgboost_features", &[row("2:1 0:0.5"), row("")]);
    let both = [inputs.clone(), sparse("fm_features", &[row(""), row("")])].concat();
    assert_divisible(&model, &call(inputs.clone(), &[]));
    let unequal = [inputs.clone(), sparse("fm_features", &[row("")])].concat();
    assert!(model.divide(&call(unequal.clone(), &[]), 1).is_none());
    model.run(call(unequal, &[])).expect_err("different numbers of rows");
    let all = model.run(call(inputs, &[])).expect("scores");
    let names: Vec<_> = all.iter().map(|output| &*output.name).collect();
    assert_eq!(names, ["score", "margin"]);
    assert_eq!(all, model.run(call(both, &[])).expect("scores"));
}

#[test]
fn a_run_reports_the_time_of_its_trees() {
    for fm in ["serving.fm", "softmax.fm"] {
        let (model, stages) = (model(fm, None), StageTimes::recorded());
        let recorded = Call { stages: stages.clone(), ..call(rows(), &["score"]) };
        let parts = model.divide(&recorded, 1).expect("parts");
        let (mut before, start) = (Duration::ZERO, Instant::now());
        for part in parts {
            model.run(part).expect("scores");
            let sum = stages.get(TREES).expect("a time");
            assert!(before <= sum && sum <= start.elapsed(), "{sum:?} after {before:?}");
            before = sum;
        }
        assert!(before > Duration::ZERO);
    }
}

#[test]
fn the_interface_has_sparse_inputs_and_the_width_of_the_classes() {
    for (framework, fm, sizes) in
        [(GBDT_FM, "serving.fm", &[-1][..]), (GBDT_FM_SOFTMAX, "softmax.fm", &[-1, 3])]
    {
        let directory = package(fm, "leaf_mapping", None);
        let interface = (framework.interface)(&directory.path().into(), "serving_default")
            .expect("an interface");
        let inputs = interface.inputs.iter().map(|input| (&*input.name, input.optional));
        let expected = [
            ("fm_features", true),
            ("fm_features_lengths", true),
            ("fm_features_weights", true),
            ("xgboost_features", false),
            ("xgboost_features_lengths", false),
            ("xgboost_features_weights", false),
        ];
        assert_eq!(inputs.collect::<Vec<_>>(), expected);
        let ids = interface.input("xgboost_features").expect("ids");
        assert_eq!(ids.dtype, ElementType::Known(DType::Int64));
        for output in ["score", "margin"] {
            assert_eq!(interface.output(output).expect("an output").shape, Shape::of(sizes));
        }
        let refused = (framework.interface)(&directory.path().into(), "sparse");
        let message = refused.expect_err("another signature").message;
        let expected = format!(
            "a model of {} has the signature \"serving_default\", whose rows are sparse, and no \
             signature \"sparse\"",
            framework.name
        );
        assert_eq!(message, expected);
    }
}

#[test]
fn a_package_of_another_framework_is_refused() {
    let directory = package("softmax.fm", "leaf_mapping", None);
    let refused = |framework: Framework| {
        (framework.interface)(&directory.path().into(), "serving_default")
            .expect_err("another one")
            .message
    };
    assert!(refused(GBDT_FM).contains("its framework is gbdt_fm_softmax, not gbdt_fm"));
    assert!(refused(XGBOOST).contains("those of a model of gbdt_fm or gbdt_fm_softmax"));
    let uplift = Some(Arc::new(Uplift::Arms(vec!["mens".to_owned()])));
    let learner =
        PackagedModel { directory: directory.path().to_owned(), uplift, is_double: false };
    let refused = (GBDT_FM_SOFTMAX.interface)(&learner, "serving_default").expect_err("uplift");
    assert!(refused.message.contains("the framework has no uplift models"), "{refused}");
    assert!(load(&learner).is_err());
}

#[test]
fn calls_that_do_not_fit_the_model_are_errors() {
    let model = model("serving.fm", None);
    let of_trees = |pairs| sparse("xgboost_features", &[row(pairs)]);
    let two = sparse("fm_features", &[row("7:1"), row("7:1")]);
    for (call, problem) in [
        (call(of_trees("0:1 2:-inf"), &[]), "row 0: the feature 2 is infinite"),
        (call(of_trees("0:1"), &["leaf"]), "no output leaf"),
        (call(two.clone(), &[]), "no input xgboost_features"),
        (call([of_trees("0:1"), two].concat(), &[]), "1 rows for the trees and 2 for the FM"),
    ] {
        let error = model.run(call).expect_err(problem).to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn weights_that_no_score_can_be_made_of_are_the_callers_fault() {
    let model = model("serving.fm", None);
    // The machine has a feature with this id.
    let known = 5;
    let of = |trees: &[(u64, f32)], machine: &[(u64, f32)]| {
        let inputs = [
            sparse("xgboost_features", &[vec![(0, 1.0)], trees.into()]),
            sparse("fm_features", &[vec![], machine.into()]),
        ];
        call(inputs.concat(), &["score"])
    };
    for (call, problem) in [
        (of(&[(2, f32::INFINITY)], &[]), "row 1: the feature 2 is infinite"),
        (of(&[(known, f32::NAN)], &[]), "row 1: the weight of the feature"),
        (of(&[], &[(known, f32::NAN)]), "row 1: the weight of the feature"),
        (of(&[], &[(known, f32::NEG_INFINITY)]), "row 1: the weight of the feature"),
    ] {
        assert!(model.divide(&call, 1).is_none(), "the error has the row of the whole call");
        let error = model.run(call).expect_err(problem);
        assert_eq!(error.reason(), Reason::FeatureNotFinite, "{error}");
        assert!(error.to_string().contains(problem), "{error}");
    }
    // NaN is a missing value for the trees, and an id that the machine lacks is ignored.
    let lacking = u64::MAX - 1;
    let ignored = of(&[(lacking, f32::NAN)], &[(lacking, f32::INFINITY)]);
    assert_eq!(model.divide(&ignored, 1).map(|parts| parts.len()), Some(2));
    let expected = model.run(of(&[], &[])).expect("scores");
    assert_eq!(model.run(ignored).expect("scores"), expected);
}

#[test]
fn features_of_the_machine_may_have_names() {
    let directory = package("named.fm", "leaf_mapping", None);
    let failure = read(directory.path()).expect_err("names without a table");
    assert!(failure.message.contains("there is no table of names"), "{failure}");
    let names = fixture("names");
    fs::write(directory.path().join(NAMES), &names).expect("a file");
    let model = read(directory.path()).expect("a model");
    let margins = model.run(call(rows(), &["margin"])).expect("scores").remove(0);
    assert_eq!(*floats(&margins).expect("floats"), expected("named")["single-margin"]);
    let files = ["trees.json", "named.fm", "leaf_mapping", "names"];
    let size: usize = files.iter().map(|name| fixture(name).len()).sum();
    assert_eq!(memory_to_read(&[GBDT_FM], directory.path()), PER_BYTE * size as u64 + OVERHEAD);
    fs::write(directory.path().join(NAMES), "shoes -1").expect("a file");
    let failure = read(directory.path()).expect_err("no id");
    assert!(failure.message.contains("table of feature names is invalid in line 1"), "{failure}");
}

#[test]
fn the_description_is_read_without_the_model() {
    let directory = package("serving.fm", "leaf_mapping", None);
    for name in ["deploy.model", "deploy.leaf_mapping"] {
        fs::write(directory.path().join(name), "no model").expect("a file");
    }
    let machine = [fixture("serving.fm"), b"malformed".to_vec()].concat();
    fs::write(directory.path().join("deploy.fm"), machine).expect("a file");
    assert!((GBDT_FM.interface)(&directory.path().into(), "serving_default").is_ok());
    assert!(read(directory.path()).is_err());
}

#[test]
fn files_that_are_no_model_are_refused() {
    let directory = package("serving.fm", "leaf_mapping", Some(r#"{"precision": "half"}"#));
    let failure = read(directory.path()).expect_err("an option");
    assert!(failure.message.contains("options.json is not valid"), "{failure}");
    let directory = package("serving.fm", "leaf_mapping", None);
    fs::remove_file(directory.path().join("deploy.leaf_mapping")).expect("a file");
    let failure = read(directory.path()).expect_err("a part is missing");
    assert!(failure.message.contains("deploy.leaf_mapping cannot be read"), "{failure}");
    fs::remove_file(directory.path().join("deploy.model")).expect("a file");
    let failure = read(directory.path()).expect_err("nothing there");
    assert!(failure.message.contains("no deploy.model or model.ubj"), "{failure}");
}

#[test]
fn reading_takes_memory_for_all_files_and_no_more() {
    let directory = package("serving.fm", "leaf_mapping", None);
    let frameworks = [XGBOOST, GBDT_FM];
    let names = ["trees.json", "serving.fm", "leaf_mapping"];
    let size: usize = names.iter().map(|name| fixture(name).len()).sum();
    let memory = memory_to_read(&frameworks, directory.path());
    assert_eq!(memory, PER_BYTE * size as u64 + OVERHEAD);
    let model = read(directory.path()).expect("a model");
    assert!((1000..memory as usize).contains(&model.memory()), "{}", model.memory());
    // A few short lines, each of which would take a copy of a long one.
    let long = format!("bias 0\n1 1{}\n", " 1".repeat(1 << 18));
    let leaves = (0..4).map(|tree| format!("{tree} 3:1 4:1 5:1 6:1\n")).collect::<String>();
    fs::write(directory.path().join("deploy.fm"), long).expect("a file");
    fs::write(directory.path().join("deploy.leaf_mapping"), leaves).expect("a file");
    let failure = read(directory.path()).expect_err("too large");
    assert!(failure.message.contains("bytes of memory"), "{failure}");
}
