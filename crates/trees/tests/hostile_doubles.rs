//! A malformed file of LightGBM or CatBoost is an error, or another model; never a panic or an
//! endless loop.

#[path = "support/doubles.rs"]
mod doubles;
#[path = "support/other_bytes.rs"]
mod other_bytes;

use std::{fs, path::Path};

use outrigger_trees::{Error, Limits, Model, Options, Output, Rows};

fn read(file: &[u8]) -> Result<Model, Error> {
    Model::read(&mut &*file, file.len() as u64, &Limits::default())
}

/// Scores rows with a model, if the file is one.
fn use_it(file: &[u8]) -> bool {
    let size = file.len() as u64;
    let Ok(model) = read(file) else { return false };
    let doubles = [f64::NAN, 0.0, 1e300, -1.0, f64::INFINITY];
    if let Ok(model) = Model::read_for_f64(&mut &*file, size, &Limits::default()) {
        let mut out = vec![0.0; model.width(Output::Margin)];
        let options = Options { output: Output::Margin, iterations: None };
        model.predict(Rows::new(&doubles, 5).expect("a row"), &options, &mut out);
    }
    let values = [f32::NAN, 0.0, 1.0, -1.0, f32::INFINITY].repeat(17);
    let rows = Rows::new(&values, 5).expect("whole rows");
    for output in [Output::Value, Output::Margin, Output::Leaf] {
        let mut out = vec![0.0; rows.len() * model.width(output)];
        model.predict_f64(rows, &Options { output, iterations: None }, &mut out);
    }
    true
}

const FIXTURES: [&str; 9] = [
    "lightgbm-2.3.1/categories.model",
    "lightgbm-3.3.5/zero-as-missing.model",
    "lightgbm-4.7.0/multiclass.model",
    "lightgbm-4.7.0/forest.model",
    "lightgbm-4.7.0/linear.model",
    "catboost-1.2.10/multiclass.json",
    "catboost-1.2.10/nan-max.json",
    "catboost-1.2.10/lossguide.json",
    "catboost-1.2.10/lossguide-classes.json",
];

fn fixture(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles");
    fs::read(root.join(name)).expect("a fixture")
}

#[test]
fn a_file_that_ends_early_is_an_error() {
    for name in FIXTURES {
        let file = fixture(name);
        assert!(use_it(&file), "{name}");
        // The last line of LightGBM's files may end without a line feed.
        for length in (0..file.len() - 1).step_by(7) {
            assert!(!use_it(&file[..length]), "{name}: {length} bytes of {}", file.len());
        }
    }
}

#[test]
fn a_file_with_other_bytes_does_no_harm() {
    for name in FIXTURES {
        other_bytes::try_each(fixture(name), &[0xFF, b'9', b'-', b'\n'], use_it);
    }
}

/// A tree with one numerical split, and one with a categorical one.
const LIGHTGBM: &str = "tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx=1
objective=binary sigmoid:1
feature_names=age price
tree_sizes=1 1

Tree=0
num_leaves=3
num_cat=0
split_feature=1 0
threshold=0.5 7
decision_type=8 2
left_child=1 -1
right_child=-2 -3
leaf_value=0.1 0.2 0.3
is_linear=0

Tree=1
num_leaves=2
num_cat=1
split_feature=0
threshold=0
decision_type=1
left_child=-1
right_child=-2
leaf_value=-1 1
cat_boundaries=0 1
cat_threshold=6

end of trees
";

/// A tree with one split.
const CATBOOST: &str = r#"{"features_info": {"float_features": [
{"feature_id": "age", "feature_index": 0, "flat_feature_index": 0, "nan_value_treatment": "AsIs"}]},
"model_info": {"params": {"loss_function": {"type": "RMSE"}}},
"oblivious_trees": [{"leaf_values": [1.5, 2.5],
"splits": [{"border": 0.5, "float_feature_index": 0, "split_type": "FloatFeature"}]}],
"scale_and_bias": [1, [0.25]]}"#;

/// A tree with a split and a split in its right node.
const NESTED: &str = r#"{"features_info": {"float_features": [
{"feature_id": "age", "feature_index": 0, "flat_feature_index": 1, "nan_value_treatment": "AsTrue"}]},
"model_info": {"params": {"loss_function": {"type": "RMSE"}}},
"scale_and_bias": [2, [0.25]],
"trees": [{"left": {"value": 1, "weight": 3}, "right": {"left": {"value": 2}, "right": {"value": 4},
"split": {"border": 1.5, "float_feature_index": 0, "split_type": "FloatFeature"}},
"split": {"border": 0.5, "float_feature_index": 0, "split_type": "FloatFeature"}}]}"#;

fn predict(file: &str, row: &[f32]) -> f64 {
    let model = read(file.as_bytes()).expect("a model");
    let mut out = [0.0];
    let options = Options { output: Output::Margin, iterations: None };
    model.predict_f64(Rows::new(row, row.len()).expect("a row"), &options, &mut out);
    out[0]
}

#[test]
fn the_examples_are_models() {
    assert_eq!(predict(LIGHTGBM, &[1.0, 0.0]), 0.1 - 1.0);
    assert_eq!(predict(LIGHTGBM, &[9.0, 0.0]), 0.3 + 1.0);
    assert_eq!(predict(LIGHTGBM, &[f32::NAN, 1.0]), 0.2 + 1.0);
    assert_eq!(predict(CATBOOST, &[1.0]), 2.75);
    assert_eq!(predict(&CATBOOST.replace("[0.25]", "0.5"), &[0.5]), 2.0);
    assert_eq!(predict(&LIGHTGBM.replace('\n', "\r\n"), &[1.0, 0.0]), 0.1 - 1.0);
    let nested = [(0.5, 2.25), (0.6, 4.25), (1.5, 4.25), (1.6, 8.25), (f32::NAN, 8.25)];
    for (value, expected) in nested {
        assert_eq!(predict(NESTED, &[9.0, value]), expected, "{value}");
    }
    let as_false = NESTED.replace("AsTrue", "AsFalse");
    assert_eq!(predict(&as_false, &[9.0, f32::NAN]), 2.25);
    assert_eq!(predict(&as_false.replace("AsFalse", "AsIs"), &[9.0, f32::NAN]), 2.25);
}

/// Asserts that the example with a text in the place of another is refused with this error.
fn assert_refused(example: &str, old: &str, new: &str, expected: &str) {
    let file = example.replacen(old, new, 1);
    assert_ne!(file, example, "{old}");
    let error = read(file.as_bytes()).expect_err(new).to_string();
    assert!(error.contains(expected), "{new}: {error}");
}

#[test]
fn errors_say_what_is_wrong_with_a_model_of_lightgbm() {
    let cases = [
        ("version=v4", "version=v1", "LightGBM before 2.0"),
        ("num_class=1\nnum_tree_per_iteration=1\n", "", "it has no outputs"),
        (
            "num_tree_per_iteration=1",
            "num_tree_per_iteration=4000000000",
            "4000000000 in an iteration",
        ),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=0", "it has no outputs"),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=x", "num_tree_per_iteration is \"x\""),
        ("num_tree_per_iteration=1", "num_tree_per_iteration=3", "2 trees, 3 in an iteration"),
        ("max_feature_idx=1\n", "", "it has no max_feature_idx"),
        ("max_feature_idx=1", "max_feature_idx=0", "it has 2 names for 1 features"),
        ("feature_names=age", "feature_names=age b", "3 names for 2 features"),
        ("sigmoid:1", "sigmoid:-1", "the sigmoid of its objective is \"-1\""),
        ("tree_sizes=1 1", "tree_sizes=1", "tree_sizes"),
        ("num_leaves=3", "num_leaves=0", "num_leaves is missing or 0"),
        ("num_leaves=3\n", "", "num_leaves is missing or 0"),
        ("num_cat=0\n", "", "a tree has no num_cat"),
        ("version=v4\n", "", "it has no version"),
        ("feature_names=age price\n", "", "it has no feature_names"),
        ("split_feature=1 0\n", "", "split_feature has 0 elements"),
        ("left_child=1 -1\n", "", "left_child has 0 elements"),
        ("right_child=-2 -3\n", "", "right_child has 0 elements"),
        ("leaf_value=0.1 0.2 0.3\n", "", "leaf_value has 0 elements"),
        ("cat_boundaries=0 1\n", "", "cat_boundaries has 0 elements"),
        ("cat_threshold=6\n", "", "cat_threshold has 0 elements"),
        ("num_leaves=3", "num_leaves=4000000000", "a tree has 4000000000 leaves"),
        ("num_leaves=3", "num_leaves=2", "split_feature has 2 elements for 2 leaves"),
        ("threshold=0.5 7", "threshold=0.5", "threshold has 1 elements for 3 leaves"),
        ("threshold=0.5 7", "threshold=0.5 x", "\"x\" is no number here"),
        ("decision_type=8 2\n", "", "a tree has no decision_type"),
        ("decision_type=8", "decision_type=12", "12 is no decision_type"),
        ("split_feature=1", "split_feature=2", "a feature beyond the last of 2"),
        ("split_feature=1", "split_feature=4294967295", "out of range"),
        ("left_child=1 -1", "left_child=0 -1", "node 0 of a tree has two parents"),
        ("left_child=1 -1", "left_child=-2 -1", "has two parents"),
        ("left_child=1 -1", "left_child=2 -1", "a tree has no node 2"),
        ("left_child=1 -1", "left_child=-4 -1", "a tree has no node -4"),
        ("left_child=1 -1", "left_child=-2147483648 -1", "a tree has no node -2147483648"),
        ("is_linear=0", "is_linear=2", "is_linear is 2"),
        ("is_linear=0", "is_linear=", "is_linear is \"\""),
        ("is_linear=0", "is_linear=1", "leaf_const has 0 elements for 3 leaves"),
        ("threshold=0\n", "threshold=1\n", "a tree has no set of categories 1"),
        ("threshold=0\n", "threshold=nan\n", "a tree has no set of categories NaN"),
        ("cat_boundaries=0 1", "cat_boundaries=2 1", "cat_boundaries descends"),
        ("cat_boundaries=0 1", "cat_boundaries=0 2", "cat_threshold has 1 elements"),
        ("cat_boundaries=0 1", "cat_boundaries=0 18446744073709551615", "cat_threshold has 1"),
        ("Tree=1", "Three=1", "split_feature has 3 elements for 2 leaves"),
        ("end of trees", "", "it has no \"end of trees\""),
    ];
    for (old, new, expected) in cases {
        assert_refused(LIGHTGBM, old, new, expected);
    }
}

/// The models of the leaves of the first tree of [`LIGHTGBM`].
const MODELS: &str = "is_linear=1
leaf_const=1 2 3
num_features=1 0 2
leaf_features=0   1 0
leaf_coeff=0.5   4 -1  ";

#[test]
fn leaves_may_have_linear_models() {
    let file = LIGHTGBM.replace("is_linear=0", MODELS);
    let expected = [
        ([1.0, 0.0], 1.5 - 1.0),
        ([9.0, 0.25], 3.0 + 1.0 - 9.0 + 1.0),
        ([f32::NAN, 1.0], 2.0 + 1.0),
        ([f32::NAN, 0.0], 0.1 + 1.0),
        ([f32::NEG_INFINITY, 0.0], f64::NEG_INFINITY),
    ];
    for (row, expected) in expected {
        assert_eq!(predict(&file, &row), expected, "{row:?}");
    }
    // The order of the lines does not count, and neither do models that are none.
    let (flag, models) = MODELS.split_once('\n').expect("lines");
    let other = LIGHTGBM.replace("is_linear=0", &format!("{models}\n{flag}"));
    assert_eq!(predict(&other, &[9.0, 0.25]), -4.0);
    let none = LIGHTGBM.replace("is_linear=0", &format!("is_linear=0\n{models}"));
    assert_eq!(predict(&none, &[9.0, 0.25]), 0.3 + 1.0);
    // Training may write such numbers, and its library scores with them.
    for number in ["nan", "-nan"] {
        assert!(
            predict(&file.replace("leaf_const=1", &format!("leaf_const={number}")), &[1.0, 0.0])
                .is_nan()
        );
    }
    let infinite = file.replace("leaf_coeff=0.5", "leaf_coeff=-inf");
    assert_eq!(predict(&infinite, &[1.0, 0.0]), f64::NEG_INFINITY);
    // A single leaf has a model without features.
    let leaf = "Tree=1\nnum_leaves=1\nnum_cat=0\nleaf_value=5\nis_linear=1\nleaf_const=7\nnum_features=0\n";
    let (file, _) = file.split_once("Tree=1").expect("a tree");
    let file = format!("{file}{leaf}leaf_features= \nleaf_coeff= \n\nend of trees\n");
    assert_eq!(predict(&file, &[1.0, 0.0]), 1.5 + 7.0);
}

#[test]
fn errors_say_what_is_wrong_with_linear_models_of_leaves() {
    let cases = [
        ("is_linear=1\n", "", "leaf_const has no is_linear"),
        ("leaf_const=1 2 3\n", "", "leaf_const has 0 elements"),
        ("leaf_const=1 2 3", "leaf_const=1 2 3 4", "leaf_const has 4 elements for 3 leaves"),
        ("leaf_const=1", "leaf_const=one", "\"one\" is no number here"),
        ("num_features=1 0 2\n", "", "num_features has 0 elements"),
        ("num_features=1 0", "num_features=1", "num_features has 2 elements for 3 leaves"),
        ("num_features=1", "num_features=2", "leaf_features has 3 elements"),
        ("num_features=1", "num_features=0", "not 2"),
        ("num_features=1", "num_features=-1", "\"-1\" is no number here"),
        ("num_features=1 0 2", "num_features=4294967295 0 4294967295", "not 8589934590"),
        ("leaf_features=0   1 0\n", "", "leaf_features has 0 elements"),
        ("leaf_features=0", "leaf_features=-1", "\"-1\" is no number here"),
        ("leaf_features=0", "leaf_features=2", "feature 2, on which the tree does not split"),
        ("leaf_features=0", "leaf_features=4294967295", "feature 4294967295, on which"),
        ("leaf_coeff=0.5   4 -1", "leaf_coeff=0.5   4", "leaf_coeff has 2 elements"),
        ("\nleaf_coeff=0.5   4 -1", "", "leaf_coeff has 0 elements"),
        ("leaf_coeff=0.5", "leaf_coeff=0.5 x", "\"x\" is no number here"),
        // A second tree without a split has no features.
        (
            "leaf_coeff=0.5   4 -1  ",
            "leaf_coeff=0.5   4 -1\n\nTree=2\nnum_leaves=1\nnum_cat=0\nleaf_value=5\nis_linear=1\n\
             leaf_const=7\nnum_features=1\nleaf_features=0\nleaf_coeff=1",
            "feature 0, on which the tree does not split",
        ),
    ];
    for (old, new, expected) in cases {
        assert_refused(&LIGHTGBM.replace("is_linear=0", MODELS), old, new, expected);
    }
}

#[test]
fn errors_say_what_is_wrong_with_a_model_of_catboost() {
    let split = "\"float_feature_index\": 0";
    let cases = [
        ("[1.5, 2.5]", "[1.5]", "its leaves have no values"),
        ("[1.5, 2.5]", "[1.5, 2.5, 3]", "not a value for each leaf and output"),
        ("[0.25]", "[0.25, 1]", "a bias for 2 outputs, and 1"),
        ("[0.25]]", "[0.25], 1]", "more than two elements"),
        (split, "\"float_feature_index\": 1", "a split uses float feature 1"),
        (split, "\"float_feature_index\": -1", "\"-1\" is no number here"),
        (split, "\"other\": 0", "no float_feature_index"),
        ("\"FloatFeature\"", "\"OnlineCtr\"", "a split of the type \"OnlineCtr\""),
        ("\"AsIs\"", "\"AsBefore\"", "\"AsBefore\" is no treatment"),
        ("\"feature_index\": 0", "\"feature_index\": 1", "another feature_index"),
        ("\"flat_feature_index\": 0", "\"flat_feature_index\": 4000000000", "out of range"),
        ("\"float_features\"", "\"text_features\"", "text features (age)"),
        ("\"oblivious_trees\"", "\"trees\"", "neither a split of two nodes nor a leaf"),
        ("\"oblivious_trees\"", "\"others\"", "no oblivious_trees"),
        ("\"features_info\"", "\"ctr_data\": {}, \"other\"", "it has no features_info"),
        ("\"float_features\"", "\"other\"", "features_info has no float_features"),
        ("\"feature_index\"", "\"other\"", "a float feature has no feature_index"),
        ("\"flat_feature_index\"", "\"other\"", "a float feature has no flat_feature_index"),
        ("\"nan_value_treatment\"", "\"other\"", "a float feature has no nan_value_treatment"),
        ("\"model_info\"", "\"other\"", "it has no model_info"),
        ("\"params\"", "\"other\"", "model_info has no params"),
        ("\"loss_function\"", "\"other\"", "no params with a loss_function"),
        ("\"type\"", "\"other\"", "loss_function has no type"),
        ("\"RMSE\"", "\"Other\"", "its loss is Other, which is not known"),
        ("\"splits\"", "\"other\"", "a tree has no splits"),
        ("\"leaf_values\"", "\"other\"", "a tree has no leaf_values"),
        ("\"border\"", "\"other\"", "a split has no border"),
        ("\"scale_and_bias\"", "\"other\"", "it has no scale_and_bias"),
        ("[1, [0.25]]", "[1]", "scale_and_bias has no bias"),
    ];
    for (old, new, expected) in cases {
        assert_refused(CATBOOST, old, new, expected);
    }
}

#[test]
fn errors_say_what_is_wrong_with_trees_that_are_not_symmetric() {
    let other = "\"oblivious_trees\": [{\"leaf_values\": [1], \"splits\": []}], \"trees\"";
    let cases = [
        ("\"value\": 2", "\"value\": [2, 3]", "a leaf has 2 values, another one 1"),
        ("\"value\": 1", "\"value\": []", "a leaf has 1 values, another one 0"),
        ("\"value\": 2", "\"value\": 2, \"value\": 3", "values twice"),
        ("\"value\": 2", "\"value\": \"2\"", "is no number here"),
        ("{\"value\": 2}", "{}", "neither a split of two nodes nor a leaf"),
        ("\"right\": {\"value\": 4}", "\"value\": 4", "neither a split of two nodes nor a leaf"),
        ("\"left\": {\"value\": 2}", "\"left\": 2", "an object"),
        ("\"left\": {\"value\": 2}, ", "", "not one left node and then one right node"),
        ("\"right\": {\"value\": 4}", "\"left\": {\"value\": 4}", "not one left node"),
        ("\"float_feature_index\": 0", "\"float_feature_index\": 1", "uses float feature 1"),
        ("\"FloatFeature\"", "\"OneHotFeature\"", "a split of the type \"OneHotFeature\""),
        ("[0.25]", "[0.25, 1]", "a bias for 2 outputs, and 1"),
        ("\"flat_feature_index\": 1", "\"flat_feature_index\": 4000000000", "out of range"),
        ("\"float_features\": [", "\"float_features\": [], \"other\": [", "but 0 are known"),
        ("\"trees\"", other, "only some of its trees are symmetric"),
    ];
    for (old, new, expected) in cases {
        assert_refused(NESTED, old, new, expected);
    }
    // Nothing is above these borders, so all values go left, missing ones too.
    for border in ["Infinity", "NaN"] {
        let file = NESTED.replace("0.5,", &format!("{border},"));
        for value in [f32::NEG_INFINITY, 0.0, f32::INFINITY, f32::NAN] {
            assert_eq!(predict(&file, &[9.0, value]), 2.25, "{value} and the border {border}");
        }
    }
}

#[test]
fn deep_trees_are_refused() {
    let limits = Limits { depth: 6, ..Limits::default() };
    let file = doubles::lightgbm(1, 7);
    let refused = Model::read(&mut file.as_bytes(), file.len() as u64, &limits);
    let error = refused.expect_err("a deep tree").to_string();
    assert!(error.contains("more than 6 levels"), "{error}");
    assert!(use_it(doubles::catboost(2, 3).as_bytes()));
    assert!(use_it(doubles::lightgbm_linear(2, 5, 3).as_bytes()));
    assert!(use_it(doubles::catboost_nested(2, 50, 1).as_bytes()));
    let file = doubles::catboost_nested(1, 7, 1);
    let refused = Model::read(&mut file.as_bytes(), file.len() as u64, &limits);
    let error = refused.expect_err("a deep tree").to_string();
    assert!(error.contains("more than 6 levels"), "{error}");
    // Before a tree is complete, the nesting of its nodes is bounded.
    for depth in [64, 1000] {
        let file = doubles::catboost_nested(1, depth, 1);
        let error = read(file.as_bytes()).expect_err("deep nesting").to_string();
        assert!(error.contains("nested too deep"), "{error}");
    }
}

#[test]
fn numbers_of_one_byte_do_not_take_four_times_their_length() {
    let many = |separator: &str| format!("1{separator}").repeat(2 << 20);
    let files = [
        LIGHTGBM.replace("cat_threshold=6", &format!("cat_threshold={}", many(" "))),
        LIGHTGBM.replace("leaf_value=-1", &format!("leaf_value={}", many(" "))),
        LIGHTGBM.replace("is_linear=0", &format!("leaf_const={}", many(" "))),
        LIGHTGBM.replace("is_linear=0", &format!("num_features={}", many(" "))),
        LIGHTGBM.replace("is_linear=0", &format!("leaf_features={}", many(" "))),
        LIGHTGBM.replace("is_linear=0", &format!("leaf_coeff={}", many(" "))),
        CATBOOST.replace("[1.5, ", &format!("[{}", many(","))),
        NESTED.replace("\"value\": 1", &format!("\"value\": [{}1]", many(","))),
    ];
    for file in files {
        let error = read(file.as_bytes()).expect_err("too much memory").to_string();
        assert!(error.contains("more memory than twice its length"), "{error}");
    }
}
