//! Outputs of several columns, and of integers.

use super::*;
use crate::fixtures::wide;

/// The written response of a plan with outputs of several columns.
fn wide_answer(options: ResponseOptions, outputs: &[Tensor]) -> Result<PredictResponse, Failure> {
    let plan = wide();
    let asked = with_options(&[0.1, 0.2, 0.3], options);
    plan.response(&pack(&plan, &[asked]).expect("packs"), outputs)
}

fn wide_outputs() -> Vec<Tensor> {
    let ranks = Tensor {
        dtype: DType::Int64,
        content: longs(&[7, i64::MIN, (1 << 24) + 1]),
        ..output("ranks", &[1, 3, 1], &[])
    };
    vec![
        output("classes", &[1, 3, 2], &[0.9, 0.1, 0.2, 0.8, 0.7, 0.3]),
        Tensor { dtype: DType::Int32, content: ints(&[3, 4, 5]), ..output("moods", &[1, 3], &[]) },
        ranks,
    ]
}

#[test]
fn a_column_is_the_score_and_all_are_returned() {
    let all = wide_answer(ResponseOptions::default(), &wide_outputs()).expect("answers");
    let list = scores(&all);
    assert_eq!(list.values, [0.9, 0.1, 0.2, 0.8, 0.7, 0.3]);
    assert_eq!((list.width, list.score_column, list.integers.len()), (2, 1, 0));
    let mood = &all.additional_outputs["mood"];
    assert_eq!((mood.values.as_slice(), mood.width), (&[3.0, 4.0, 5.0][..], 3));
    assert_eq!(mood.integers, [3, 4, 5]);

    let options = ResponseOptions { top_k: 2, ..ResponseOptions::default() };
    let best = wide_answer(options, &wide_outputs()).expect("answers");
    assert_eq!(scores(&best).values, [0.2, 0.8, 0.7, 0.3]);
    assert_eq!(scores(&best).indices, [1, 2]);
    let rank = &best.additional_outputs["rank"];
    assert_eq!(rank.integers, [i64::MIN, (1 << 24) + 1]);
    assert_eq!(rank.values, [i64::MIN as f32, 16_777_216.0]);
}

#[test]
fn a_single_score_of_several_columns_comes_with_all_of_them() {
    let outputs = vec!["mood".to_owned()];
    let options = ResponseOptions { outputs, ..ResponseOptions::default() };
    let response = wide_answer(options, &wide_outputs()).expect("answers");
    assert_eq!(response.output, Some(Output::Score(3.0)));
    let expected = ScoreList {
        values: vec![3.0, 4.0, 5.0],
        integers: vec![3, 4, 5],
        width: 3,
        ..ScoreList::default()
    };
    assert_eq!(response.score_values, Some(expected));
}

#[test]
fn integers_are_ranked_exactly() {
    let options =
        ResponseOptions { top_k: 1, outputs: vec!["rank".to_owned()], ..Default::default() };
    let mut outputs = wide_outputs();
    outputs[2].content = longs(&[1 << 24, (1 << 24) + 1, i64::MIN]);
    let response = wide_answer(options, &outputs).expect("answers");
    assert_eq!(scores(&response).indices, [1], "as float32 the first two are equal");
}

#[test]
fn a_value_that_is_not_finite_is_named_with_its_column() {
    let failure = |at: usize, shape: &[i64]| {
        let mut values = [0.5; 6];
        values[at] = f32::NAN;
        let classes = output("classes", shape, &values);
        let options = ResponseOptions { outputs: vec!["class".to_owned()], ..Default::default() };
        wide_answer(options, &[classes]).expect_err("refused").message
    };
    let nan = |index| format!("output \"class\": the value at {index} is NaN");
    assert_eq!(failure(3, &[1, 3, 2]), nan("[0, 1, 1]"));
    assert_eq!(failure(4, &[1, 3, 2]), nan("[0, 2, 0]"));
    assert_eq!(
        failure(0, &[1, 6]),
        "output \"class\": expected shape [1, 3, 2], the engine returned [1, 6]"
    );
}

#[test]
fn statistics_use_the_column_that_is_the_score() {
    let plan = wide();
    let packed = pack(&plan, &[request(&[0.1, 0.2, 0.3])]).expect("packs");
    let outputs = wide_outputs();
    assert_eq!(plan.sample(&packed, &outputs, 0, 4), Ok(Sample::Score(0.8)));
    assert_eq!(plan.best(&packed, &outputs, 0), Ok(Some(Best { position: 1, score: 0.8 })));
    assert_eq!(plan.score_at(&packed, &outputs, 2), Some(0.3));
    let mut broken = outputs;
    broken[0].content = floats(&[f32::NAN, 0.1, 0.2, 0.8, 0.7, 0.3]);
    assert_eq!(plan.sample(&packed, &broken, 0, 4), Ok(Sample::NotFinite));
}

#[test]
fn columns_and_exact_integers_are_part_of_the_json() {
    let plan = wide();
    let json = |outputs: &[&str]| {
        let outputs = outputs.iter().map(|name| (*name).to_owned()).collect();
        let options = ResponseOptions { outputs, ..ResponseOptions::default() };
        let packed = pack(&plan, &[with_options(&[0.1, 0.2, 0.3], options)]).expect("packs");
        let outputs = wide_outputs();
        let answer = plan.answer(&packed, &outputs, &[]).expect("answers");
        let json = answer.to_json(&ServedModel::default(), None);
        String::from_utf8(json).expect("text").replace(r#""model":{},"#, "")
    };
    assert_eq!(
        json(&["class", "mood", "rank"]),
        concat!(
            r#"{"outputs":{"mood":[3,4,5],"rank":[7,-9223372036854775808,16777217]},"#,
            r#""request_id":"r","scores":[{"score":0.1,"values":[0.9,0.1]},"#,
            r#"{"score":0.8,"values":[0.2,0.8]},{"score":0.3,"values":[0.7,0.3]}]}"#
        )
    );
    assert_eq!(
        json(&["mood", "class"]),
        concat!(
            r#"{"outputs":{"class":[[0.9,0.1],[0.2,0.8],[0.7,0.3]]},"#,
            r#""request_id":"r","score":3,"values":[3,4,5]}"#
        )
    );
    assert_eq!(
        json(&["rank"]),
        r#"{"request_id":"r","scores":[{"score":7},{"score":-9223372036854775808},{"score":16777217}]}"#
    );
}
