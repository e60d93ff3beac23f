use std::borrow::Cow;

use outrigger_budget::Budget;
use outrigger_features::GivenScores;
use outrigger_proto::tensorflow::serving::ModelSpec;
use outrigger_trace::Span;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{front::Method, held::Held, xgboost_serving::REST};

fn written(answer: Answer, rows: usize, scores: GivenScores<'_>) -> Value {
    let now = Instant::now();
    let call = Call::begin(&REST, Method::Predict, now, now, Span::none());
    call.seat(Held::on(&Budget::new(256 << 20)));
    let values = Values { answer, rows, scores, spec: ModelSpec::default() };
    serde_json::from_slice(&document(&call, &values).unwrap()).unwrap()
}

fn scores(width: usize, floats: &[f32], integers: &[i64]) -> GivenScores<'static> {
    let floats: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    GivenScores { width, floats: Cow::Owned(floats), integers: integers.to_vec() }
}

#[test]
fn an_answer_is_a_list() {
    let floats = [0.25, -1.0, 2.0, 3.5];
    assert_eq!(written(Answer::Value, 2, scores(2, &floats, &[])), json!({"outputs": floats}));
    assert_eq!(
        written(Answer::Scores, 2, scores(2, &floats, &[])),
        json!({"outputs": [[floats[0], floats[1]], [floats[2], floats[3]]]})
    );
    assert_eq!(
        written(Answer::Index, 1, scores(2, &[0.0; 2], &[3, 1 << 25])),
        json!({"outputs": [3, 1 << 25]})
    );
    assert_eq!(written(Answer::Scores, 0, scores(6, &[], &[])), json!({"outputs": []}));
}
