//! Requests as the JSON of POST /v1/predict.

use outrigger_proto::outrigger::v1::{ModelSelector, model_selector::Version, value::Kind};
use serde_json::{Map, Value, json};

use super::sample::Sample;

/// A request without a model.
pub(super) fn request(sample: &Sample) -> Map<String, Value> {
    let user: Map<_, _> =
        sample.user.iter().map(|(name, kind)| (name.to_string(), value(kind))).collect();
    let treatments = sample.treatments.iter().map(|treatment| {
        let values = sample.columns.iter().zip(&treatment.values);
        let features: Map<_, _> =
            values.map(|(column, kind)| (column.name.to_string(), value(kind))).collect();
        json!({"id": treatment.id, "features": features})
    });
    let mut request = Map::new();
    request.insert("request_id".to_owned(), json!(sample.request_id));
    request.insert("routing_key".to_owned(), json!(sample.routing_key));
    request.insert("user".to_owned(), user.into());
    request.insert("treatments".to_owned(), treatments.collect());
    request
}

/// The body of a request to `model`.
pub(super) fn addressed(model: &ModelSelector, request: &Map<String, Value>) -> Vec<u8> {
    let mut selector = json!({"name": model.name});
    match &model.version {
        Some(Version::Tag(tag)) => selector["tag"] = json!(tag),
        Some(Version::Digest(digest)) => selector["digest"] = json!(digest),
        None => {}
    }
    let mut request = request.clone();
    request.insert("model".to_owned(), selector);
    Value::Object(request).to_string().into_bytes()
}

fn value(kind: &Kind) -> Value {
    match kind {
        Kind::Number(value) => short(*value),
        Kind::Real(value) => json!(value),
        Kind::Integer(value) => json!(value),
        Kind::Flag(value) => json!(value),
        Kind::Text(value) => json!(value),
        Kind::Numbers(list) => list.values.iter().map(|value| short(*value)).collect(),
        Kind::Reals(list) => json!(list.values),
        Kind::Integers(list) => json!(list.values),
        Kind::Texts(list) => json!(list.values),
        Kind::Sparse(list) => {
            let weights: Value = list.weights.iter().map(|weight| short(*weight)).collect();
            match list.names.is_empty() {
                true => json!({"ids": list.ids, "weights": weights}),
                false => json!({"names": list.names, "weights": weights}),
            }
        }
    }
}

/// The shortest decimal form that identifies the number, as clients send it.
fn short(value: f32) -> Value {
    json!(value.to_string().parse::<f64>().unwrap_or_else(|_| value.into()))
}
