use outrigger_core::Reason;
use serde_json::{Value, json};

use super::*;

fn read(platform: Platform, document: &str) -> Result<Asked, Failure> {
    let limits = Limits { max_treatments: 3, ..Limits::default() };
    let mut admitted = None;
    let admit = |bytes| {
        admitted = Some(bytes);
        Ok(())
    };
    let asked =
        Asked::read_json(platform, ModelSpec::default(), document.as_bytes(), &limits, admit);
    if let Ok(asked) = &asked {
        assert!(admitted >= Some(asked.rows.size()), "{admitted:?}");
    }
    asked
}

fn lengths(input: &GivenInput) -> Vec<i64> {
    let (lengths, _) = input.lengths.as_chunks();
    lengths.iter().map(|length| i64::from_le_bytes(*length)).collect()
}

#[test]
fn a_document_becomes_tensors() {
    let document = json!({
        "option_mask": 1,
        "unknown": [{"nested": null}],
        "xgboost_features": [
            {"feature_score": {"id": [18446744073709551615_u64, 2], "score": [1, -0.5]}},
            {"feature_score": {"score": [], "id": []}},
            {"feature_score": {}},
        ],
    });
    let asked = read(Platform::Xgboost, &document.to_string()).unwrap();
    assert_eq!((asked.answer, asked.rows.rows), (Answer::Margin, 3));
    let [input] = &asked.rows.inputs[..] else { panic!("one input") };
    assert_eq!((input.tensor, lengths(input)), ("xgboost_features", vec![2, 0, 0]));
    // XGBoost gets the lower bits of ids.
    let ids = [0xFFFF_FFFF, 2_u64];
    assert!(input.ids.iter().copied().eq(ids.into_iter().flat_map(u64::to_le_bytes)));
    let weights = [1.0_f32, -0.5];
    assert!(input.weights.iter().copied().eq(weights.into_iter().flat_map(f32::to_le_bytes)));
}

#[test]
fn bare_words_are_scores() {
    let score = |text: &str| {
        let row =
            format!(r#"{{"N\"aN": "NaN\\", "feature_score": {{"id": [1], "score": [{text}]}}}}"#);
        let asked = read(Platform::Xgboost, &format!(r#"{{"xgboost_features": [{row}]}}"#))?;
        let bytes = asked.rows.inputs[0].weights.first_chunk().copied();
        Ok::<_, Failure>(f32::from_le_bytes(bytes.expect("a weight")))
    };
    assert!(score("NaN").expect("missing").is_nan());
    assert_eq!(score("-1.5"), Ok(-1.5));
    for infinite in ["Infinity", "-Infinity", "Inf", "-Inf", "1e39"] {
        assert_eq!(score(infinite).expect_err(infinite).reason, Reason::FeatureNotFinite);
    }
    for other in ["nan", "null", "\"x\"", "-NaN", "Nan", "true"] {
        assert_eq!(score(other).expect_err(other).reason, Reason::RequestMalformed, "{other}");
    }
}

#[test]
fn the_platforms_read_what_concerns_them() {
    let rows = json!([{"feature_score": {"id": [1], "score": [1]}}]);
    let both = json!({"xgboost_features": rows, "fm_features": rows, "option_mask": 0});
    let inputs = |platform| read(platform, &both.to_string()).unwrap().rows.inputs.len();
    assert_eq!((inputs(Platform::Xgboost), inputs(Platform::AlphafmSoftmax)), (1, 2));
    let options =
        json!({"xgboost_features": [], "fm_features": [], "option_mask": 9, "ntree_limit": 9});
    assert!(read(Platform::Alphafm, &options.to_string()).is_ok());
    assert!(read(Platform::Xgboost, &options.to_string()).is_err());
}

#[test]
fn a_limit_of_trees_is_an_input_of_the_model() {
    let number = |platform, mask: i32, limit: u32| {
        let document = json!({
            "xgboost_features": [], "fm_features": [], "option_mask": mask, "ntree_limit": limit,
        });
        read(platform, &document.to_string()).map(|asked| asked.rows.number)
    };
    assert_eq!(number(Platform::Xgboost, 1, 7), Ok(Some(("ntree_limit", 7))));
    assert_eq!(number(Platform::Xgboost, 0, 0), Ok(None));
    assert_eq!(number(Platform::Alphafm, 0, 7), Ok(None));
    assert_eq!(number(Platform::Xgboost, 2, 7), Ok(Some(("ntree_limit", 7))));
}

/// Wrong types end XGBoost Serving's process.
#[test]
fn documents_that_are_not_valid_are_refused() {
    let row = |row: Value| json!({"xgboost_features": [row]}).to_string();
    let lists = |id: Value, score: Value| row(json!({"feature_score": {"id": id, "score": score}}));
    for (document, problem) in [
        (String::new(), "cannot be read"),
        ("[]".into(), "expected an object with xgboost_features"),
        ("7".into(), "expected an object with xgboost_features"),
        ("{}".into(), r#"there is no "xgboost_features""#),
        (r#"{"xgboost_features": [], "xgboost_features": []}"#.into(), "duplicate field"),
        (r#"{"xgboost_features": []} []"#.into(), "trailing characters"),
        (r#"{"xgboost_features": null}"#.into(), "expected a list of rows"),
        (r#"{"xgboost_features": {}}"#.into(), "expected a list of rows"),
        (r#"{"xgboost_features": [], "option_mask": "0"}"#.into(), "invalid type: string"),
        (r#"{"xgboost_features": [], "option_mask": 3}"#.into(), "option_mask"),
        (r#"{"xgboost_features": [], "ntree_limit": -1}"#.into(), "cannot be read"),
        (row(json!(7)), "expected an object with feature_score"),
        (row(json!({})), "missing field `feature_score`"),
        (row(json!({"feature_score": []})), "expected an object with id and score"),
        (lists(json!("1"), json!([])), "expected a list of numbers"),
        (lists(json!([1.5]), json!([1])), "expected u64"),
        (lists(json!([-1]), json!([1])), "expected u64"),
        (lists(json!(["1"]), json!([1])), "expected u64"),
        (lists(json!([1]), json!(["1"])), "expected a number"),
        (lists(json!([1]), json!([null])), "expected a number"),
        (lists(json!([1, 2]), json!([1])), "has 2 ids and 1 scores"),
        (lists(json!([1]), json!([1e39])), "a score is inf"),
    ] {
        let failure = read(Platform::Xgboost, &document).expect_err(problem);
        assert!(failure.message.contains(problem), "{document}: {failure}");
    }
    let rows = vec![json!({"feature_score": {}}); 4];
    let failure = read(Platform::Xgboost, &json!({"xgboost_features": rows}).to_string());
    assert_eq!(failure.expect_err("four rows").reason, Reason::TooManyTreatments);
    let rows = json!({"xgboost_features": [], "fm_features": [{"feature_score": {}}]});
    let failure = read(Platform::Alphafm, &rows.to_string()).expect_err("other rows");
    assert!(failure.message.contains(r#""xgboost_features" has 0 rows"#), "{failure}");
}
