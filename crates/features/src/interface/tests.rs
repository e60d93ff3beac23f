use std::sync::Arc;

use outrigger_core::{Categories, DType, ElementType, Interface, Shape, TensorSpec};

use crate::{fixtures::wide_joined, metadata::Metadata};

const METADATA: &[u8] = include_bytes!("../../tests/metadata/good/architecture.json");

fn spec(name: &str, dtype: DType, sizes: &[i64]) -> TensorSpec {
    TensorSpec::new(name, dtype.into(), Shape::of(sizes))
}

/// The interface that the architecture's example metadata describes.
fn interface() -> Interface {
    let inputs = vec![
        spec("user_numeric", DType::Float32, &[-1, 5]),
        spec("user_segment", DType::Int64, &[-1, 1]),
        spec("treatment_numeric", DType::Float32, &[-1, -1, 2]),
        spec("treatment_counts", DType::Int32, &[-1]),
    ];
    Interface::new(inputs, vec![spec("scores", DType::Float32, &[-1, -1])])
}

fn check(interface: &Interface) -> Result<(), String> {
    let metadata = Metadata::parse(METADATA).expect("valid");
    metadata.check_interface(interface).map_err(|error| error.to_string())
}

fn with(specs: &[TensorSpec], changed: TensorSpec) -> Vec<TensorSpec> {
    let others = specs.iter().filter(|spec| spec.name != changed.name).cloned();
    others.chain([changed.clone()]).collect()
}

fn change_input(input: TensorSpec) -> Result<(), String> {
    let Interface { inputs, outputs } = interface();
    check(&Interface::new(with(&inputs, input), outputs))
}

fn change_output(output: TensorSpec) -> Result<(), String> {
    let Interface { inputs, outputs } = interface();
    check(&Interface::new(inputs, with(&outputs, output)))
}

#[test]
fn metadata_that_agrees_is_accepted() {
    assert_eq!(check(&interface()), Ok(()));
    let any = |name: &str| TensorSpec::new(name, DType::Float32.into(), Shape::Any);
    assert_eq!(change_input(any("user_numeric")), Ok(()));
    assert_eq!(change_input(spec("treatment_numeric", DType::Float32, &[-1, -1, -1])), Ok(()));
    assert_eq!(change_output(any("scores")), Ok(()));
    assert_eq!(change_output(spec("scores", DType::Int64, &[-1, -1, 1])), Ok(()));
}

#[test]
fn contradictions_name_both_sides() {
    let composite = TensorSpec::new("scores", ElementType::Composite, Shape::of(&[-1, -1]));
    let unsupported = |name: &str| ElementType::Unsupported(name.into());
    let unknown = unsupported("of unknown type 999");
    let cases = [
        (
            change_input(spec("user_segment", DType::String, &[-1, 1])),
            r#"inputs[1].dtype: metadata.json says "user_segment" is int64; the model says it is string"#,
        ),
        (
            change_input(spec("user_numeric", DType::Float32, &[-1, 6])),
            r#"inputs[0]: metadata.json says "user_numeric" is [B, 5] (2 user features, width 5); the model says it is [?, 6]"#,
        ),
        (
            change_input(spec("treatment_numeric", DType::Float32, &[-1, 2])),
            r#"inputs[2]: metadata.json says "treatment_numeric" is [B, T, 2] (2 treatment features, width 2); the model says it is [?, 2]"#,
        ),
        (
            change_input(spec("treatment_counts", DType::Int32, &[8])),
            r#"inputs[3]: metadata.json says "treatment_counts" is [B] (treatment_count); the model says it is [8]"#,
        ),
        (
            change_input(spec("extra", DType::Float32, &[-1])),
            r#"inputs: metadata.json says that its inputs are ["user_numeric", "user_segment", "treatment_numeric", "treatment_counts"]; the model says it also needs ["extra"]"#,
        ),
        (
            change_output(spec("scores", DType::String, &[-1, -1])),
            r#"outputs[0]: metadata.json says "scores" is an output of numbers (float32, float64, int32 or int64); the model says it is string"#,
        ),
        (
            change_output(spec("scores", DType::Float32, &[-1, -1, 2])),
            r#"outputs[0].kind: metadata.json says "scores" is per_treatment: [B, T] or [B, T, 1]; the model says it is [?, ?, 2]"#,
        ),
        (
            change_output(composite),
            r#"outputs[0].tensor: metadata.json says "scores" is a dense tensor; the model says it is sparse or composite"#,
        ),
        (
            change_output(TensorSpec::new("scores", unsupported("uint8"), Shape::Any)),
            r#"outputs[0]: metadata.json says "scores" is an output of numbers (float32, float64, int32 or int64); the model says it is uint8"#,
        ),
        (
            change_input(TensorSpec::new("user_segment", unknown, Shape::of(&[-1, 1]))),
            r#"inputs[1].dtype: metadata.json says "user_segment" is int64; the model says it is of unknown type 999"#,
        ),
    ];
    for (result, message) in cases {
        assert_eq!(result, Err(message.to_owned()));
    }
}

#[test]
fn tensors_the_model_does_not_have_are_named() {
    let mut without = interface();
    without.inputs.retain(|input| &*input.name != "user_numeric");
    let message = check(&without).expect_err("not there");
    assert!(
        message.contains(r#"input "user_numeric" is fed; the model says its inputs are"#),
        "{message}"
    );
    let mut without = interface();
    without.outputs.clear();
    let message = check(&without).expect_err("not there");
    assert!(message.ends_with("the model says its outputs are []"), "{message}");
}

#[test]
fn an_input_with_a_default_of_its_own_need_not_be_fed() {
    let extra = spec("temperature", DType::Float32, &[]);
    assert!(change_input(extra.clone()).is_err());
    assert_eq!(change_input(TensorSpec { optional: true, ..extra }), Ok(()));
}

#[test]
fn outputs_have_as_many_columns_as_declared() {
    let json = include_bytes!("../../tests/metadata/good/wide.json");
    let metadata = Metadata::parse(json).expect("valid");
    let check = |classes: &[i64], moods: &[i64]| {
        let outputs = vec![
            spec("classes", DType::Float32, classes),
            spec("moods", DType::Int64, moods),
            spec("ranks", DType::Int64, &[-1, -1]),
        ];
        let checked = metadata.check_interface(&Interface::new(interface().inputs, outputs));
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(check(&[-1, -1, 2], &[-1, 3]), Ok(()));
    assert_eq!(check(&[-1, -1, -1], &[-1, -1]), Ok(()));
    for classes in [&[-1, -1][..], &[-1, -1, 1], &[-1, -1, 3]] {
        let message = check(classes, &[-1, 3]).expect_err("another width");
        let declared = r#"metadata.json says "classes" is per_treatment: [B, T, 2]; the model"#;
        assert!(message.contains(declared), "{message}");
    }
    let message = check(&[-1, -1, 2], &[-1]).expect_err("another width");
    assert_eq!(
        message,
        r#"outputs[1].kind: metadata.json says "moods" is single: [B, 3]; the model says it is [?]"#
    );
}

#[test]
fn lists_are_fed_as_their_values_and_lengths() {
    let json = include_bytes!("../../tests/metadata/good/lists.json");
    let metadata = Metadata::parse(json).expect("valid");
    let check = |history: &[i64], lengths: TensorSpec| {
        let inputs = vec![
            spec("history", DType::Int64, history),
            spec("history_lengths", DType::Int64, &[-1]),
            spec("tags", DType::String, &[-1]),
            lengths,
            spec("numbers", DType::Float32, &[-1, -1, 4]),
        ];
        let outputs = vec![spec("scores", DType::Float32, &[-1, -1])];
        let checked = metadata.check_interface(&Interface::new(inputs, outputs));
        checked.map_err(|error| error.to_string())
    };
    let lengths = || spec("tags_lengths", DType::Int64, &[-1, -1]);
    assert_eq!(check(&[-1], lengths()), Ok(()));
    assert_eq!(
        check(&[-1, 4], lengths()),
        Err(r#"inputs[0]: metadata.json says "history" is [N] (the elements of user lists); the model says it is [?, 4]"#.to_owned())
    );
    assert_eq!(
        check(&[-1], spec("tags_lengths", DType::Int64, &[-1])),
        Err(r#"inputs[1].lengths: metadata.json says "tags_lengths" is [B, T] (the lengths of the lists in "tags"); the model says it is [?]"#.to_owned())
    );
    assert_eq!(
        check(&[-1], spec("tags_lengths", DType::Int32, &[-1, -1])),
        Err(r#"inputs[1].lengths: metadata.json says "tags_lengths" is int64; the model says it is int32"#.to_owned())
    );
    let message = check(&[-1], spec("other", DType::Int64, &[-1])).expect_err("not fed");
    assert!(
        message.starts_with(
            r#"inputs[1].lengths: metadata.json says that input "tags_lengths" is fed"#
        ),
        "{message}"
    );
}

#[test]
fn a_joined_model_has_rows_of_all_users() {
    let json = include_bytes!("../../tests/metadata/good/joined.json");
    let metadata = Metadata::parse(json).expect("valid");
    let check = |numbers: &[i64], scores: &[i64]| {
        let inputs =
            vec![spec("numbers", DType::Float32, numbers), spec("words", DType::String, &[-1, 2])];
        let outputs = vec![spec("scores", DType::Float32, scores)];
        let checked = metadata.check_interface(&Interface::new(inputs, outputs));
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(check(&[-1, 5], &[-1]), Ok(()));
    assert_eq!(check(&[-1, -1], &[-1, 1]), Ok(()));
    assert_eq!(
        check(&[-1, 4], &[-1]),
        Err(r#"inputs[0]: metadata.json says "numbers" is [R, 5] (4 joined features, width 5); the model says it is [?, 4]"#.to_owned())
    );
    assert_eq!(
        check(&[-1, 5], &[-1, 2]),
        Err(r#"outputs[0].kind: metadata.json says "scores" is per_treatment: [R] or [R, 1]; the model says it is [?, 2]"#.to_owned())
    );
}

#[test]
fn an_output_of_a_joined_model_has_as_many_columns_as_declared() {
    let check = |scores: &[i64]| {
        let inputs =
            vec![spec("numbers", DType::Float32, &[-1, 5]), spec("words", DType::String, &[-1, 2])];
        let outputs = vec![spec("scores", DType::Float32, scores)];
        let checked = wide_joined().check_interface(&Interface::new(inputs, outputs));
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(check(&[-1, 3]), Ok(()));
    assert_eq!(check(&[-1, -1]), Ok(()));
    for (scores, model) in [(&[-1][..], "[?]"), (&[-1, 2], "[?, 2]"), (&[-1, 1, 3], "[?, 1, 3]")] {
        let declared = r#"outputs[0].kind: metadata.json says "scores" is per_treatment: [R, 3]"#;
        assert_eq!(check(scores), Err(format!("{declared}; the model says it is {model}")));
    }
}

#[test]
fn sparse_rows_are_ids_weights_and_lengths() {
    let json = include_bytes!("../../tests/metadata/good/sparse_joined.json");
    let metadata = Metadata::parse(json).expect("valid");
    let check = |changed: TensorSpec| {
        let sparse = |name: &str| {
            let of = |part: &str, dtype| spec(&format!("{name}{part}"), dtype, &[-1]);
            [of("", DType::Int64), of("_weights", DType::Float32), of("_lengths", DType::Int64)]
        };
        let inputs = ["xgboost_features", "fm_features"].map(sparse).concat();
        let inputs = [inputs, vec![spec("x", DType::Float32, &[-1, 2])]].concat();
        let outputs = vec![spec("scores", DType::Float32, &[-1])];
        let interface = Interface::new(with(&inputs, changed), outputs);
        metadata.check_interface(&interface).map_err(|error| error.to_string())
    };
    assert_eq!(check(spec("fm_features", DType::Int64, &[-1])), Ok(()));
    assert_eq!(
        check(spec("fm_features", DType::Int64, &[-1, 9])),
        Err(r#"inputs[1]: metadata.json says "fm_features" is [N] (the ids of joined rows); the model says it is [?, 9]"#.to_owned())
    );
    assert_eq!(
        check(spec("fm_features_weights", DType::Float64, &[-1])),
        Err(r#"inputs[1].weights: metadata.json says "fm_features_weights" is float32; the model says it is float64"#.to_owned())
    );
    assert_eq!(
        check(spec("fm_features_lengths", DType::Int64, &[-1, -1])),
        Err(r#"inputs[1].lengths: metadata.json says "fm_features_lengths" is [R] (the lengths of the rows of ids in "fm_features"); the model says it is [?, ?]"#.to_owned())
    );
    let message = check(spec("more", DType::Float32, &[-1])).expect_err("not fed");
    assert!(message.contains(r#"it also needs ["more"]"#), "{message}");
}

#[test]
fn a_name_with_a_blank_is_a_column_without_one_where_the_model_has_none() {
    let metadata = joined(r#"{"name": "a b", "entity": "user", "default": 0}"#);
    let check = |name: &str, has_no_blanks| {
        let spec = TensorSpec { columns: [name.into()].into(), has_no_blanks, ..joined_spec(1) };
        metadata.check_interface(&interface_of(spec)).is_ok()
    };
    assert!(check("a b", false) && check("a_b", true));
    assert!(!check("a_b", false) && !check("a b", true) && !check("a__b", true));
}

fn joined(features: &str) -> Metadata {
    let json = format!(
        r#"{{"schema": "outrigger.dev/model/v1", "framework": "xgboost",
        "inputs": [{{"tensor": "x", "entity": "joined", "dtype": "float32", "features": [{features}]}}],
        "outputs": [{{"tensor": "y", "name": "y", "kind": "per_treatment"}}]}}"#
    );
    Metadata::parse(json.as_bytes()).expect("valid")
}

fn joined_spec(width: i64) -> TensorSpec {
    spec("x", DType::Float32, &[-1, width])
}

fn interface_of(input: TensorSpec) -> Interface {
    Interface::new(vec![input], vec![spec("y", DType::Float32, &[-1])])
}

/// The refusal of features with these vocabularies by a model with these categories, each with its
/// column.
fn refusal(vocabularies: &[&str], categories: &[(Option<usize>, &[&str])]) -> Option<String> {
    let features = vocabularies.iter().enumerate().map(|(at, words)| {
        let encoding = match *words {
            "" => String::new(),
            words => format!(r#", "vocabulary": {words}, "out_of_vocabulary": -1"#),
        };
        format!(r#"{{"name": "f{at}", "entity": "user", "missing": "nan"{encoding}}}"#)
    });
    let metadata = joined(&features.collect::<Vec<_>>().join(","));
    let categories = categories.iter().map(|(column, words)| Categories {
        column: *column,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
    });
    let categories = categories.collect();
    let input = TensorSpec { categories, ..joined_spec(vocabularies.len() as i64) };
    metadata.check_interface(&interface_of(input)).err().map(|error| error.to_string())
}

#[test]
fn a_vocabulary_has_the_categories_of_its_column_in_their_order() {
    let right = r#"["x", "y"]"#;
    let reversed = r#"["y", "x"]"#;
    let message = r#"inputs[0].features[1].vocabulary: metadata.json says its words are ["y", "x"]; the model says the categories of the column are ["x", "y"]"#;
    let list: &[&str] = &["x", "y"];
    for column in [Some(1), None] {
        assert_eq!(refusal(&["", right], &[(column, list)]), None);
        assert_eq!(refusal(&["", reversed], &[(column, list)]), Some(message.to_owned()));
    }
    assert!(refusal(&["", r#"["x", "y", "z"]"#], &[(Some(1), list)]).is_some());
    assert!(refusal(&["", r#"["x"]"#], &[(None, list)]).is_some());
    assert_eq!(refusal(&[reversed, ""], &[(Some(1), list)]), None, "another column");
    // Two readings of one column, the first one without its last characters.
    let readings = [(Some(0), &["да", "н\u{fffd}\u{fffd}"][..]), (Some(0), &["д", "ан"][..])];
    assert_eq!(refusal(&[r#"["да", "нет"]"#], &readings), None);
    assert_eq!(refusal(&[r#"["д", "ан"]"#], &readings), None);
    for other in [r#"["нет", "да"]"#, r#"["да", "не"]"#, r#"["да", "дет"]"#] {
        assert!(refusal(&[other], &readings).is_some(), "{other}");
    }
    // Numbers and flags are written in more than one way.
    assert_eq!(refusal(&["[1, 3]"], &[(None, &["1", "3"])]), None);
    assert_eq!(refusal(&[r#"["1.0", "3"]"#], &[(None, &["1", "3"])]), None);
    assert!(refusal(&["[3, 1]"], &[(None, &["1", "3"])]).is_some());
    assert_eq!(refusal(&[r#"["False", "True"]"#], &[(None, &["false", "true"])]), None);
}

#[test]
fn where_columns_are_not_known_a_vocabulary_is_none_of_the_lists_in_another_order() {
    let lists: &[(Option<usize>, &[&str])] = &[(None, &["a", "b"]), (None, &["c", "d"])];
    assert_eq!(refusal(&[r#"["c", "d"]"#, ""], lists), None);
    assert_eq!(refusal(&[r#"["e", "f"]"#], lists), None, "the words of something else");
    assert!(refusal(&[r#"["d", "c"]"#], lists).is_some());
}

#[test]
fn long_lists_are_shown_from_their_first_difference_on() {
    let words: Vec<_> = (0..50).map(|at| format!("w{at}")).collect();
    let list: Vec<_> = words.iter().map(String::as_str).collect();
    let mut other = words.clone();
    other.swap(40, 41);
    let message = refusal(&[&format!("{other:?}")], &[(Some(0), &list)]).expect("refused");
    assert!(message.contains(r#"from position 40 on ["w41", "w40""#), "{message}");
    assert!(message.contains(r#"from position 40 on ["w40", "w41""#), "{message}");
}

#[test]
fn the_columns_that_a_model_names_are_those_of_the_features() {
    let check = |names: [&str; 5]| {
        let columns = names.map(Arc::<str>::from).into();
        change_input(TensorSpec { columns, ..spec("user_numeric", DType::Float32, &[-1, 5]) })
    };
    let vector = ["embedding_0", "embedding_1", "user.embedding_2", "embedding3"];
    let named = |first| [first, vector[0], vector[1], vector[2], vector[3]];
    assert_eq!(check(named("recency_months")), Ok(()));
    assert_eq!(check(named("user.recency_months")), Ok(()));
    for other in ["recency", "recency_months_2", "treatment.recency_months"] {
        let message = format!(
            r#"inputs[0].features[0].name: metadata.json says column 0 is "recency_months"; the model says it is {other:?}"#
        );
        assert_eq!(check(named(other)), Err(message));
    }
    let message = r#"inputs[0].features[1].name: metadata.json says column 2 is "embedding"; the model says it is "age""#;
    let moved = ["recency_months", "embedding_0", "age", "embedding_2", "embedding_3"];
    assert_eq!(check(moved), Err(message.to_owned()));
}
