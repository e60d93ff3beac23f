//! Conversion of a `PredictResponse` to JSON, as a tree of values.

use outrigger_proto::outrigger::v1::{
    Arm, PredictResponse, ScoreList, ServedModel, TreatmentError, predict_response::Output,
};
use serde_json::{Map, Value, json};

use crate::{metadata::OutputKind, plan::Plan};

/// The JSON form of a response: either `scores`, with a `score` for each treatment and
/// its `id` and `index` if the response has them, or a single `score`, each with all
/// `values` of an output of several columns; further `outputs` by name, with their numbers
/// in the same order; `treatment_errors`, `degraded`. Empty fields are omitted.
pub fn predict_response(plan: &Plan, response: &PredictResponse) -> Value {
    let mut body = Map::new();
    if let Some(model) = &response.model {
        body.insert("model".into(), served_model(model));
    }
    put_text(&mut body, "request_id", &response.request_id);
    match &response.output {
        Some(Output::Score(score)) => match &response.score_values {
            None => body.insert("score".into(), number(*score)),
            Some(list) => {
                if list.width > 1 {
                    body.insert("values".into(), values(list).into());
                }
                let all = values(list);
                body.insert("score".into(), all[list.score_column as usize].clone())
            }
        },
        Some(Output::Scores(list)) => body.insert("scores".into(), scores(list)),
        None => None,
    };
    if !response.additional_outputs.is_empty() {
        body.insert("outputs".into(), outputs(plan, response));
    }
    if !response.treatment_errors.is_empty() {
        let errors = response.treatment_errors.iter().map(treatment_error);
        body.insert("treatment_errors".into(), errors.collect());
    }
    if let Some(degraded) = &response.degraded {
        let value = json!({"reason": degraded.reason, "used": degraded.used});
        body.insert("degraded".into(), value);
    }
    Value::Object(body)
}

fn put_text(object: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        object.insert(key.to_owned(), text.into());
    }
}

fn served_model(model: &ServedModel) -> Value {
    let mut object = Map::new();
    put_text(&mut object, "name", &model.name);
    put_text(&mut object, "digest", &model.digest);
    put_text(&mut object, "platform_digest", &model.platform_digest);
    put_text(&mut object, "tag", &model.tag);
    let arm = match model.arm() {
        Arm::Unspecified => "",
        Arm::Live => "live",
        Arm::Canary => "canary",
        Arm::Pinned => "pinned",
    };
    put_text(&mut object, "arm", arm);
    Value::Object(object)
}

/// All values, row-major.
fn values(list: &ScoreList) -> Vec<Value> {
    match list.integers.as_slice() {
        [] => list.values.iter().copied().map(number).collect(),
        integers => integers.iter().copied().map(Value::from).collect(),
    }
}

fn scores(list: &ScoreList) -> Value {
    let values = values(list);
    let rows = values.chunks(list.width.max(1) as usize);
    let row = |(row, columns): (usize, &[Value])| {
        let mut object = Map::new();
        put_text(&mut object, "id", list.treatment_ids.get(row).map_or("", String::as_str));
        if let Some(index) = list.indices.get(row) {
            object.insert("index".into(), (*index).into());
        }
        object.insert("score".into(), columns[list.score_column as usize].clone());
        if columns.len() > 1 {
            object.insert("values".into(), columns.into());
        }
        Value::Object(object)
    };
    rows.enumerate().map(row).collect()
}

fn outputs(plan: &Plan, response: &PredictResponse) -> Value {
    let mut object = Map::new();
    for output in &plan.metadata().outputs {
        let Some(list) = response.additional_outputs.get(&*output.name) else { continue };
        let values = values(list);
        let value = match (output.kind, output.width) {
            (OutputKind::Single, 1) => values.first().cloned().unwrap_or(Value::Null),
            (OutputKind::Single, _) | (OutputKind::PerTreatment, 1) => values.into(),
            (OutputKind::PerTreatment, width) => values.chunks(width).map(Value::from).collect(),
        };
        object.insert(output.name.as_ref().to_owned(), value);
    }
    Value::Object(object)
}

fn treatment_error(error: &TreatmentError) -> Value {
    let mut object = Map::new();
    object.insert("index".into(), error.index.into());
    put_text(&mut object, "id", &error.id);
    put_text(&mut object, "reason", &error.reason);
    put_text(&mut object, "message", &error.message);
    put_text(&mut object, "feature", &error.feature);
    Value::Object(object)
}

/// A float32 as the shortest number that reads back as the same float32.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
