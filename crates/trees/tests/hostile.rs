//! A malformed file is an error, or another model; never a panic or an endless loop.

#[path = "support/other_bytes.rs"]
mod other_bytes;
#[path = "support/sample.rs"]
mod sample;

use std::{fs, path::Path};

use outrigger_trees::{Columns, Error, Header, Limits, Model, Options, Output, Rows};
use sample::Sample;

fn read(file: &[u8]) -> Result<Model, Error> {
    Model::read(&mut &*file, file.len() as u64, &Limits::default())
}

/// The largest output that is asked for.
const COLUMNS: usize = 1 << 20;

/// Reads the header, scores rows with a model, and explains the scores, if the file is one.
fn use_it(file: &[u8]) -> bool {
    let header = Header::read(&mut &*file, file.len() as u64, &Limits::default());
    let Ok(model) = read(file) else { return false };
    assert!(header.is_ok(), "{header:?}");
    let values = [f32::NAN, 0.0, 1.0, -1.0, f32::INFINITY].repeat(17);
    let rows = Rows::new(&values, 5).expect("whole rows");
    for output in [Output::Value, Output::Margin, Output::Leaf] {
        let mut out = vec![0.0; rows.len() * model.width(output)];
        model.predict(rows, &Options { output, iterations: None }, &mut out);
    }
    for columns in [Columns::All, Columns::Used] {
        let explainer = model.explainer(None, columns).ok().filter(|it| it.columns() <= COLUMNS);
        if let Some(explainer) = explainer {
            let mut out = vec![0.0; rows.len() * explainer.columns()];
            assert!(explainer.explain(rows, &mut out, &|| true));
        }
    }
    true
}

fn fixture(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::read(root.join(name)).expect("a fixture")
}

const FIXTURES: [&str; 6] = [
    "1.5.0/dart.bin",
    "1.5.0/softmax.json",
    "1.7.6/categorical.ubj",
    "2.1.4/vector-leaves.json",
    "3.2.0/vector-leaves.ubj",
    "3.4.1/dart.ubj",
];

#[test]
fn a_file_that_ends_early_is_an_error() {
    for name in FIXTURES {
        let file = fixture(name);
        assert!(use_it(&file), "{name}");
        // The binary format ends with attributes, and other formats with brackets.
        for length in (0..file.len()).step_by(7) {
            assert!(!use_it(&file[..length]), "{name}: {length} bytes of {}", file.len());
        }
    }
}

#[test]
fn a_file_with_other_bytes_does_no_harm() {
    for name in FIXTURES {
        other_bytes::try_each(fixture(name), &[0xFF, b'9'], use_it);
    }
}

/// The example with one text replaced by another: the error that it is then.
fn error_of(old: &str, new: &str) -> String {
    let example = include_str!("example.json");
    let file = example.replacen(old, new, 1);
    assert_ne!(file, example, "{old}");
    read(file.as_bytes()).expect_err(new).to_string()
}

#[test]
fn errors_say_what_is_wrong_with_a_model() {
    let left = "\"left_children\": [1, -1, -1]";
    let cases = [
        (left, "\"left_children\": [0, -1, -1]", "node 0 of a tree has two parents"),
        (left, "\"left_children\": [2, -1, -1]", "node 2 of a tree has two parents"),
        (left, "\"left_children\": [1, 0, -1]", "two parents"),
        (left, "\"left_children\": [3, -1, -1]", "a tree has no node 3"),
        (left, "\"left_children\": [-7, -1, -1]", "a tree has no node -7"),
        (left, "\"left_children\": [1, -1]", "left_children has 2"),
        (left, "\"left_children\": []", "left_children has 0"),
        (left, "\"left_children\": [1, -1, 0.5]", "\"0.5\" is no number here"),
        (left, "\"left_children\": [1, -1, 9999999999]", "\"9999999999\" is no number here"),
        ("\"split_indices\": [1", "\"split_indices\": [2", "a feature beyond the last of 2"),
        ("\"split_indices\": [1", "\"split_indices\": [4294967295", "out of range"),
        ("\"split_type\": [0", "\"split_type\": [1", "has no categories"),
        ("\"split_type\": [0", "\"split_type\": [7", "7 is no type of a split"),
        ("\"categories_nodes\": []", "\"categories_nodes\": [0]", "differ in length"),
        ("\"tree_info\": [0]", "\"tree_info\": [1]", "output 1 of 1"),
        ("\"tree_info\": [0]", "\"tree_info\": []", "tree_info"),
        ("\"iteration_indptr\": [0, 1]", "\"iteration_indptr\": [0, 2]", "iteration_indptr"),
        ("\"5E-1\"", "\"[1,2]\"", "2 base scores for 1 outputs"),
        ("\"5E-1\"", "\"half\"", "base_score is \"half\""),
        ("\"num_class\": \"0\"", "\"num_class\": \"4000000000\"", "4000000000 outputs"),
        ("\"feature_names\": []", "\"feature_names\": [\"a\"]", "1 names for 2 features"),
        ("\"gbtree\"", "\"gblinear\"", "gblinear"),
        ("\"gbtree\"", "\"other\"", "the booster \"other\" is not known"),
        ("\"learner\"", "\"other\"", "it has no learner"),
        ("\"version\"", "\"other\"", "it has no version"),
        ("\"gradient_booster\"", "\"other\"", "learner has no gradient_booster"),
        ("\"learner_model_param\"", "\"other\"", "learner has no learner_model_param"),
        ("\"objective\"", "\"other\"", "learner has no objective"),
        ("\"name\": \"reg", "\"other\": \"reg", "objective has no name"),
        ("\"base_score\"", "\"other\"", "learner_model_param has no base_score"),
        ("\"num_class\"", "\"other\"", "learner_model_param has no num_class"),
        (
            "\"num_feature\": \"2\",\n",
            "\"other\": \"2\",\n",
            "learner_model_param has no num_feature",
        ),
        ("\"name\": \"gb", "\"other\": \"gb", "gradient_booster has no name"),
        ("\"model\"", "\"other\"", "gradient_booster has no model"),
        ("\"gbtree_model_param\"", "\"other\"", "model has no gbtree_model_param"),
        ("\"num_trees\"", "\"other\"", "gbtree_model_param has no num_trees"),
        ("\"num_trees\": \"1\"", "\"num_trees\": \"2\"", "num_trees is 2, but it has 1 trees"),
        ("\"iteration_indptr\"", "\"other\"", "model has no iteration_indptr"),
        ("\"tree_info\"", "\"other\"", "model has no tree_info"),
        ("\"trees\"", "\"other\"", "model has no trees"),
        ("\"tree_param\"", "\"other\"", "a tree has no tree_param"),
        ("\"num_nodes\"", "\"other\"", "tree_param has no num_nodes"),
        ("\"num_nodes\": \"3\"", "\"num_nodes\": \"4\"", "num_nodes is 4, but left_children has 3"),
        ("\"size_leaf_vector\"", "\"other\"", "tree_param has no size_leaf_vector"),
        (left, "\"other\": []", "a tree has no left_children"),
        ("\"right_children\"", "\"other\"", "a tree has no right_children"),
        ("\"split_indices\"", "\"other\"", "a tree has no split_indices"),
        ("\"split_conditions\"", "\"other\"", "a tree has no split_conditions"),
        ("\"default_left\"", "\"other\"", "a tree has no default_left"),
        ("\"split_type\"", "\"other\"", "a tree has no split_type"),
        ("\"categories\"", "\"other\"", "a tree has no categories"),
        ("\"categories_nodes\"", "\"other\"", "a tree has no categories_nodes"),
        ("\"categories_segments\"", "\"other\"", "a tree has no categories_segments"),
        ("\"categories_sizes\"", "\"other\"", "a tree has no categories_sizes"),
    ];
    for (old, new, expected) in cases {
        let error = error_of(old, new);
        assert!(error.contains(expected), "{new}: {error}");
    }
}

/// Keys of files that XGBoost has written, each of which gets another name.
#[test]
fn a_part_that_ubjson_lacks_is_named() {
    let keys = [
        "learner",
        "version",
        "gradient_booster",
        "learner_model_param",
        "objective",
        "name",
        "base_score",
        "num_class",
        "num_feature",
        "model",
        "gbtree_model_param",
        "num_trees",
        "iteration_indptr",
        "tree_info",
        "trees",
        "tree_param",
        "num_nodes",
        "size_leaf_vector",
        "left_children",
        "right_children",
        "split_indices",
        "split_conditions",
        "default_left",
        "split_type",
        "categories",
        "categories_nodes",
        "categories_segments",
        "categories_sizes",
    ];
    for (name, key) in FIXTURES.iter().flat_map(|name| keys.map(|key| (name, key))) {
        if !name.ends_with(".ubj") || name.starts_with("1.7") && key == "iteration_indptr" {
            continue;
        }
        let mut file = fixture(name);
        // The length before a key tells it apart from those that begin with it.
        let text = [&[key.len() as u8], key.as_bytes()].concat();
        let mut windows = file.windows(text.len());
        let found = match key {
            // Other parts before the one that counts have these keys too.
            "num_feature" | "size_leaf_vector" => windows.rposition(|window| window == text),
            _ => windows.position(|window| window == text),
        };
        let at = found.unwrap_or_else(|| panic!("{name} has no {key}"));
        file[at + 1] = b'X';
        let error = read(&file).map(drop).expect_err(key).to_string();
        // Sets of categories without one of their lists are refused before the list is missed.
        let is_of_sets = key.starts_with("categories") || key == "split_type";
        let is_named = error.contains(&format!("has no {key}"));
        assert!(is_named || is_of_sets && name.contains("categorical"), "{name}: {key}: {error}");
    }
}

#[test]
fn a_header_is_read_whatever_the_trees_are() {
    let example = include_str!("example.json");
    let header =
        |file: &str| Header::read(&mut file.as_bytes(), file.len() as u64, &Limits::default());
    let file = example.replacen("\"left_children\": [1", "\"left_children\": [0", 1);
    assert!(read(file.as_bytes()).is_err());
    assert_eq!(header(&file).ok(), header(example).ok());
    let file = example.replacen("\"iteration_indptr\": [0, 1]", "\"iteration_indptr\": [0, 2]", 1);
    let error = header(&file).expect_err("one tree").to_string();
    assert!(error.contains("iteration_indptr"), "{error}");
}

#[test]
fn a_model_that_was_saved_with_its_configuration_is_read() {
    let example = include_str!("example.json");
    let file = format!("{{\"Config\": {{\"a\": [1, \"]\"]}}, \"Model\": {example}}}");
    assert!(use_it(file.as_bytes()));
}

#[test]
fn other_files_are_not_models() {
    for file in ["", " ", "{", "{}", "null", "[]", "binf", "{\"learner\": 3}", "PK\u{3}\u{4}"] {
        assert!(read(file.as_bytes()).is_err(), "{file:?}");
    }
}

#[test]
fn deep_trees_and_nested_values_are_refused() {
    let limits = Limits { depth: 6, ..Limits::default() };
    let file = Sample::full(1, 7).ubjson();
    let error = Model::read(&mut &*file, file.len() as u64, &limits).expect_err("a deep tree");
    assert!(error.to_string().contains("more than 6 levels"), "{error}");
    let nested = format!("{{\"learner\": {}", "[".repeat(1 << 20));
    assert!(read(nested.as_bytes()).is_err());
    let nested = [b"{L\0\0\0\0\0\0\0\x01a".as_slice(), &b"[".repeat(1 << 20)].concat();
    assert!(read(&nested).expect_err("nested").to_string().contains("nested too deep"));
}

/// A UBJSON file in which an array stands for the left children of a tree.
fn with_array(array: &[u8]) -> Result<Model, Error> {
    let file = Sample::full(1, 1).ubjson();
    let key = b"left_children";
    let at = file.windows(key.len()).position(|window| window == key).expect("the key") + key.len();
    read(&[&file[..at], array].concat())
}

#[test]
fn counts_beyond_the_file_are_refused_before_memory_is_taken() {
    let count = |count: i64| count.to_be_bytes();
    let arrays: [Vec<u8>; 7] = [
        [b"[$l#L".as_slice(), &count(1 << 60)].concat(),
        [b"[$l#L".as_slice(), &count(i64::MAX)].concat(),
        [b"[$l#L".as_slice(), &count(-1)].concat(),
        [b"[$Z#L".as_slice(), &count(1 << 60)].concat(),
        [b"[$T#L".as_slice(), &count(1 << 60)].concat(),
        [b"[#L".as_slice(), &count(1 << 60)].concat(),
        [b"SL".as_slice(), &count(1 << 60)].concat(),
    ];
    for array in arrays {
        let error = with_array(&array).expect_err("a count beyond the file");
        assert!(matches!(error, Error::Invalid(_)), "{array:?}: {error}");
    }
}

#[test]
fn numbers_of_one_byte_do_not_take_four_times_their_length() {
    let count = 4 << 20;
    let array = [b"[$i#L".as_slice(), &i64::to_be_bytes(count), &vec![0xFF; count as usize]];
    let error = with_array(&array.concat()).expect_err("too much memory");
    assert!(error.to_string().contains("more memory than twice its length"), "{error}");
}

#[test]
fn samples_are_the_same_model_in_every_format() {
    for sample in [Sample::full(3, 6), Sample::uneven(3, 8, 32, 0), Sample::uneven(3, 8, 16, 2)] {
        let values: Vec<_> = (0..60).map(|at| (at as f32).sin()).collect();
        let rows = Rows::new(&values, 20).expect("whole rows");
        let outputs = [sample.json(), sample.ubjson(), sample.binary()].map(|file| {
            let mut out = [0.0; 9];
            let options = Options { output: Output::Leaf, iterations: None };
            read(&file).expect("a model").predict(rows, &options, &mut out);
            out
        });
        assert_eq!(outputs[0], outputs[1]);
        assert_eq!(outputs[0], outputs[2]);
    }
}
