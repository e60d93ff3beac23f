use outrigger_proto::outrigger::v1::{PredictResponse, ScoreList, predict_response::Output};

use super::*;
use crate::fixtures::{everything, plan, wide};

fn scored(values: &[f32]) -> PredictResponse {
    let list = ScoreList { values: values.to_vec(), ..ScoreList::default() };
    PredictResponse { output: Some(Output::Scores(list)), ..PredictResponse::default() }
}

fn cases(plan: &Plan, jsonl: &[u8]) -> Result<Vec<GoldenCase>, GoldenError> {
    let mut reader = GoldenCases::new(jsonl);
    std::iter::from_fn(|| reader.next(plan).transpose()).collect()
}

fn case(expected: &str) -> GoldenCase {
    let line = format!(r#"{{"request": {{}}, "expected": {expected}, "rtol": 0.5, "atol": 1}}"#);
    cases(&plan(), line.as_bytes()).expect("valid").remove(0)
}

#[test]
fn cases_are_read_line_by_line() {
    let lines = br#"
{"request": {"user": {"recency_months": 1}, "treatments": [{"id": "a"}]}, "expected": {"scores": [0.5]}}

{"request": {}, "expected": {"score": 1, "outputs": {"risk": 2, "other": [3, 4]}}, "rtol": 0, "atol": 0.25}
"#;
    let cases = cases(&plan(), lines).expect("valid");
    assert_eq!(cases.len(), 2);
    assert_eq!((cases[0].line, cases[1].line), (2, 4));
    assert_eq!((cases[0].rtol, cases[0].atol), (DEFAULT_RTOL, DEFAULT_ATOL));
    assert_eq!((cases[1].rtol, cases[1].atol), (0.0, 0.25));
    assert_eq!(cases[0].request.treatments[0].id, "a");
    assert_eq!(cases[0].expected, Values::Many(vec![0.5]));
    assert_eq!(cases[1].expected, Values::One(1.0));
    assert_eq!(cases[1].outputs["risk"], Values::One(2.0));
    assert_eq!(cases[1].outputs["other"], Values::Many(vec![3.0, 4.0]));
}

#[test]
fn a_bad_line_is_named_with_its_path() {
    for (line, message) in [
        ("{", "not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "expected an object, found an array"),
        (r#"{"expected": {"scores": []}}"#, "request: is required"),
        (r#"{"request": {}}"#, "expected: is required"),
        (r#"{"request": {}, "expected": {}}"#, "expected: one of score and scores is needed"),
        (
            r#"{"request": {}, "expected": {"score": 1, "scores": []}}"#,
            "expected: one of score and scores is needed",
        ),
        (
            r#"{"request": {}, "expected": {"scores": [null]}}"#,
            "expected.scores[0]: expected a number, found null",
        ),
        (
            r#"{"request": {}, "expected": {"scores": []}, "rtol": -1}"#,
            "rtol: must not be negative",
        ),
        (
            r#"{"request": {"user": 1}, "expected": {"scores": []}}"#,
            "request.user: expected an object, found a number",
        ),
    ] {
        let file = format!("\n{line}\n");
        let error = cases(&plan(), file.as_bytes()).expect_err(line);
        assert_eq!(error.to_string(), format!("golden.jsonl line 2: {message}"));
    }
}

#[test]
fn a_case_is_read_up_to_a_limit_and_no_further() {
    let long = format!("{{}}{}", " ".repeat(MAX_GOLDEN_CASE - 1));
    let error = cases(&plan(), format!("\n{long}\n").as_bytes()).expect_err("too long");
    assert_eq!(error.to_string(), "golden.jsonl line 2: a case has more than 4194304 bytes");
    let mut endless = GoldenCases::new(std::io::BufReader::new(std::io::repeat(b'1')));
    let error = endless.next(&plan()).expect_err("too long");
    assert!(error.to_string().contains("more than"), "{error}");
    assert!(endless.text.capacity() < 3 * MAX_GOLDEN_CASE);
}

#[test]
fn values_may_differ_by_both_tolerances_together() {
    let case = case(r#"{"scores": [2, -2]}"#);
    assert_eq!(case.compare(&scored(&[4.0, -4.0])), Ok(()));
    let mismatch = case.compare(&scored(&[0.0, -4.5])).expect_err("one is too far off");
    assert_eq!(mismatch.compared, 2);
    let difference =
        Difference { place: "scores[1]".into(), expected: Some(-2.0), actual: Some(-4.5) };
    assert_eq!(mismatch.differences, [difference]);
    assert_eq!(
        mismatch.to_string(),
        "golden.jsonl line 1: 1 of 2 values differ: scores[1] is -4.5, expected -2"
    );
    assert_eq!(mismatch.reason(), Reason::GoldenMismatch);
}

#[test]
fn nan_equals_nothing_and_counts_must_agree() {
    assert!(case(r#"{"scores": [2]}"#).compare(&scored(&[f32::NAN])).is_err());
    assert!(case(r#"{"scores": [2]}"#).compare(&scored(&[2.0, 2.0])).is_err());
    assert!(case(r#"{"scores": [2, 2]}"#).compare(&scored(&[2.0])).is_err());
    assert!(case(r#"{"scores": [2]}"#).compare(&PredictResponse::default()).is_err());
    let single = PredictResponse { output: Some(Output::Score(2.0)), ..Default::default() };
    assert_eq!(case(r#"{"score": 2}"#).compare(&single), Ok(()));
    assert!(case(r#"{"scores": []}"#).compare(&single).is_err());
    assert!(case(r#"{"score": 2}"#).compare(&scored(&[2.0])).is_err());
    assert!(case(r#"{"score": 2, "outputs": {"risk": 1}}"#).compare(&single).is_err());
}

#[test]
fn golden_cases_of_a_model_that_draws_compare_only_the_count() {
    let line = br#"{"request": {}, "expected": {"scores": [1, 2]}}"#;
    let case = cases(&everything(), line).expect("valid").remove(0);
    assert_eq!(case.compare(&scored(&[100.0, 200.0])), Ok(()));
    assert!(case.compare(&scored(&[1.0])).is_err());
}

/// A response of three treatments with two columns each, the second one the score, and `mood`.
fn wide_scored(values: &[f32]) -> PredictResponse {
    let list = |values: &[f32], width, score_column| {
        let values = values.to_vec();
        ScoreList { values, width, score_column, ..ScoreList::default() }
    };
    let additional_outputs = [("mood".to_owned(), list(&[5.0, 6.0, 7.0], 3, 0))].into();
    let output = Some(Output::Scores(list(values, 2, 1)));
    PredictResponse { output, additional_outputs, ..PredictResponse::default() }
}

#[test]
fn all_columns_or_the_scores_are_compared() {
    let compare = |expected: &str| {
        let line = format!(r#"{{"request": {{}}, "expected": {expected}}}"#);
        let case = cases(&wide(), line.as_bytes()).expect("valid").remove(0);
        case.compare(&wide_scored(&[1.0, 2.0, 3.0, 4.0])).map_err(|error| error.to_string())
    };
    let differ = |message: &str| Err(format!("golden.jsonl line 1: {message}"));
    assert_eq!(compare(r#"{"scores": [2, 4]}"#), Ok(()));
    assert_eq!(compare(r#"{"scores": [[1, 2], [3, 4]], "outputs": {"mood": 5}}"#), Ok(()));
    assert_eq!(compare(r#"{"scores": [2, 4], "outputs": {"mood": [5, 6, 7]}}"#), Ok(()));
    assert_eq!(
        compare(r#"{"scores": [[1, 2], [9, 4]]}"#),
        differ("1 of 4 values differ: scores[1][0] is 3, expected 9")
    );
    assert_eq!(
        compare(r#"{"scores": [[1, 2]]}"#),
        differ(
            "2 of 4 values differ: scores[1][0] is 3, expected none, scores[1][1] is 4, expected none"
        )
    );
    assert_eq!(
        compare(r#"{"scores": [[1, 2, 3]]}"#),
        differ("1 of 1 values differ: the number of columns of scores is 2, expected 3")
    );
    assert_eq!(
        compare(r#"{"scores": [2, 4], "outputs": {"mood": [5, 6]}}"#),
        differ("1 of 5 values differ: outputs[\"mood\"][2] is 7, expected none")
    );
    let ragged = br#"{"request": {}, "expected": {"scores": [[1, 2], [3]]}}"#;
    assert_eq!(
        cases(&wide(), ragged).expect_err("ragged").message,
        "expected.scores[1]: has 1 columns, the row before it 2"
    );
}

#[test]
fn the_columns_of_a_user_are_compared_with_a_list() {
    let list = |values: Vec<f32>| ScoreList { values, width: 2, ..ScoreList::default() };
    let response = |values: Vec<f32>| PredictResponse {
        output: Some(Output::Score(values[0])),
        score_values: Some(list(values)),
        ..PredictResponse::default()
    };
    let found = response(vec![5.0, 6.0]);
    assert_eq!(case(r#"{"score": [5, 6]}"#).compare(&found), Ok(()));
    assert_eq!(case(r#"{"score": 5}"#).compare(&found), Ok(()));
    assert!(case(r#"{"score": [5, 60]}"#).compare(&found).is_err());
    assert!(case(r#"{"score": [5]}"#).compare(&found).is_err());
    assert!(case(r#"{"scores": [[5, 6]]}"#).compare(&found).is_err());
    let plan = wide();
    assert_eq!(plan.compare_padded(None, &found, &found), Ok(()));
    assert!(plan.compare_padded(None, &found, &response(vec![5.0, 7.0])).is_err());
}

#[test]
fn integers_are_compared_exactly() {
    let large = (1 << 24) + 1;
    let list =
        ScoreList { values: vec![16_777_216.0], integers: vec![large], ..ScoreList::default() };
    let output = Some(Output::Scores(list));
    let response = PredictResponse { output, ..PredictResponse::default() };
    let compare = |expected: i64| {
        let line = format!(
            r#"{{"request": {{}}, "expected": {{"scores": [{expected}]}}, "rtol": 0, "atol": 0}}"#
        );
        cases(&plan(), line.as_bytes()).expect("valid").remove(0).compare(&response)
    };
    assert_eq!(compare(large), Ok(()));
    assert!(compare(large - 1).is_err());
}

#[test]
fn padded_requests_are_compared_within_the_tolerances_of_their_case() {
    let risky = |score, risk: f32| {
        let list = ScoreList { values: vec![risk], ..ScoreList::default() };
        let additional_outputs = [("risk".to_owned(), list)].into();
        PredictResponse { additional_outputs, ..scored(&[score]) }
    };
    let (plan, case) = (plan(), case(r#"{"scores": [2]}"#));
    let (alone, padded) = (risky(2.0, 1.0), risky(2.5, 1.0));
    assert_eq!(plan.compare_padded(None, &alone, &alone), Ok(()));
    assert_eq!(plan.compare_padded(Some(&case), &alone, &padded), Ok(()));
    let mismatch = plan.compare_padded(None, &alone, &padded).expect_err("they differ");
    assert_eq!(mismatch.to_string(), "1 of 2 values differ: scores[0] is 2.5, expected 2");
    let mismatch = plan.compare_padded(None, &alone, &risky(2.0, 3.0)).expect_err("they differ");
    assert_eq!(mismatch.differences[0].place, "outputs[\"risk\"][0]");
    let single = |score| PredictResponse { output: Some(Output::Score(score)), ..alone.clone() };
    assert!(plan.compare_padded(None, &single(1.0), &single(1.1)).is_err());
    let wide = wide_scored(&[1.0, 2.0]);
    assert_eq!(plan.compare_padded(None, &wide, &wide), Ok(()));
    assert!(plan.compare_padded(None, &wide, &wide_scored(&[9.0, 2.0])).is_err());
    assert_eq!(everything().compare_padded(None, &alone, &padded), Ok(()), "the model draws");
}
