//! The scores of `outrigger_testenv.trees.fm` (docs/contributing.md) for a model in each form.

mod support;

use std::{collections::HashMap, fs, path::PathBuf};

use outrigger_fm::{File, Kind, Limits, Model, Names, Output, Precision, Reading};
use outrigger_testkit::tables;
use support::{Content, Entry, Pairs, score};

const BINARY: [&str; 7] = [
    "serving.fm",
    "alphafm.fm",
    "named.fm",
    "double.bin",
    "single.bin",
    "factors0.fm",
    "factors9.fm",
];

const SOFTMAX: [&str; 2] = ["softmax.fm", "softmax0.fm"];

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    fs::read(path).expect("a fixture")
}

fn text(name: &str) -> String {
    String::from_utf8(fixture(name)).expect("UTF-8")
}

fn content(fm: &str, leaf_mapping: &str) -> Content {
    let [trees, fm, leaf_mapping] = ["trees.json", fm, leaf_mapping].map(fixture);
    Content { trees, fm, leaf_mapping }
}

fn names() -> Names {
    let names = fixture("names");
    let file = File { content: &mut names.as_slice(), size: names.len() as u64 };
    Names::read(file, &Limits::default()).expect("names")
}

fn read(fm: &str, kind: Kind) -> Model {
    let names = names();
    let reading = Reading { names: Some(&names), ..Reading::new(kind) };
    let model = content(fm, "leaf_mapping").read(&reading);
    model.unwrap_or_else(|error| panic!("{fm}: {error}"))
}

fn rows() -> Pairs {
    let entry = |pair: &str| -> Entry {
        let (id, weight) = pair.split_once(':').expect("a pair");
        (id.parse().expect("an id"), weight.parse().expect("a weight"))
    };
    let entries = |part: &str| part.split_whitespace().map(entry).collect();
    let parts = |line: &str| {
        let (trees, machine) = line.split_once('|').expect("two parts");
        (entries(trees), entries(machine))
    };
    text("rows").lines().map(parts).collect()
}

fn expected(fm: &str) -> HashMap<String, Vec<f32>> {
    let (name, _) = fm.split_once('.').expect("an ending");
    let text = text(&format!("{name}.txt"));
    let tables = tables::read(&text).into_iter();
    tables.map(|(name, (_, values))| (name, values)).collect()
}

fn compare(fm: &str, model: &Model) {
    let expected = expected(fm);
    for (precision, name) in [(Precision::Single, "single"), (Precision::Double, "double")] {
        let margins = score(model, &rows(), Output::Margin, precision);
        assert_eq!(margins, expected[&format!("{name}-margin")], "{fm}: {name}");
        let values = score(model, &rows(), Output::Value, precision);
        let expected = &expected[&format!("{name}-value")];
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-7;
        let same = values.len() == expected.len() && values.iter().zip(expected).all(near);
        assert!(same, "{fm}: {name}\n found    {values:?}\n expected {expected:?}");
    }
}

#[test]
fn binary_models_have_the_scores_of_the_reference() {
    for fm in BINARY {
        let model = read(fm, Kind::Binary);
        assert_eq!((model.kind(), model.classes(), model.skipped().count), (Kind::Binary, 1, 0));
        compare(fm, &model);
    }
}

#[test]
fn softmax_models_have_the_scores_of_the_reference() {
    for fm in SOFTMAX {
        let model = read(fm, Kind::Softmax);
        assert_eq!((model.kind(), model.classes(), model.skipped().count), (Kind::Softmax, 3, 0));
        compare(fm, &model);
    }
}

#[test]
fn the_lenient_mode_skips_the_lines_that_xgboost_serving_skips() {
    let content = content("lenient.fm", "lenient.leaf_mapping");
    let reading = Reading { lenient: true, ..Reading::new(Kind::Binary) };
    let model = content.read(&reading).expect("a model");
    compare("lenient.fm", &model);
    // Six lines of the FM file, and ten lines and pairs of the mapping.
    let skipped = model.skipped();
    assert_eq!(skipped.count, 16);
    let first = "the FM file is invalid in line 4: the line is empty";
    assert_eq!(skipped.first.as_deref(), Some(first));
    let text = format!("skipped entries of the model's files: 16; of the first one, {first}");
    assert_eq!(skipped.to_string(), text);
    let error = content.read(&Reading::new(Kind::Binary)).expect_err("a strict reading");
    assert!(error.to_string().contains("line 4: the line is empty"), "{error}");
}

#[test]
fn files_with_names_need_their_table() {
    let error = content("named.fm", "leaf_mapping").read(&Reading::new(Kind::Binary));
    let error = error.expect_err("a name").to_string();
    assert!(error.contains("\"age_30\" is no id, and there is no table of names"), "{error}");
}

#[test]
fn factors_and_columns_are_those_of_the_files() {
    let factors = BINARY.map(|fm| read(fm, Kind::Binary).factors());
    assert_eq!(factors, [3, 3, 3, 3, 3, 0, 9]);
    let model = read("softmax.fm", Kind::Softmax);
    assert_eq!((model.factors(), model.tree_features()), (5, 6));
}

#[test]
fn no_rows_have_no_scores() {
    let model = read("softmax.fm", Kind::Softmax);
    assert!(score(&model, &[], Output::Value, Precision::Single).is_empty());
}
