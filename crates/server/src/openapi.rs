//! The description of the HTTP interface: an OpenAPI document, made of the descriptors of
//! `outrigger.v1` and of the table of reasons.

mod explanations;
mod models;
mod predictions;

use std::{collections::BTreeMap, sync::LazyLock};

use axum::body::Bytes;
use outrigger_core::Reason;
use serde_json::{Map, Value, json};

use crate::{
    http::{DOCUMENT_PATH, EXPLAIN_PATH, MODELS_PATH, PREDICT_PATH, TIMEOUT_HEADER},
    priority,
};

/// The document as text, as it is served.
pub(crate) static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document().into());

/// The OpenAPI document of the HTTP interface, JSON.
///
/// # Panics
/// Never: the descriptors are those of this build.
pub fn document() -> String {
    let mut schemas = models::schemas();
    schemas.extend(predictions::schemas());
    schemas.extend(explanations::schemas());
    schemas.insert("Error".to_owned(), error());
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Outrigger",
            "version": "v1",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "Predictions and the states of models as JSON. Every failure has a stable \
                reason; docs/errors.md lists them. A caller without a token has the rights that the \
                setting auth.anonymous gives. Models are described as in the gRPC interface: where a \
                text is empty there, a number 0 or a message absent, the value is null here.",
        },
        "security": [{}, {"token": []}],
        "paths": {
            PREDICT_PATH: {"post": predict()},
            EXPLAIN_PATH: {"post": explain()},
            MODELS_PATH: {"get": list()},
            format!("{MODELS_PATH}/{{name}}"): {"get": show()},
            DOCUMENT_PATH: {"get": described()},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    });
    format!("{document:#}\n")
}

fn predict() -> Value {
    let others = [Reason::AdminOnly, Reason::MethodUnknown, Reason::ContributionsUnsupported];
    let reasons = Reason::ALL.iter().filter(|reason| !others.contains(reason));
    json!({
        "operationId": "predict",
        "summary": "Scores one user's treatments.",
        "description": "Values get their types from the model's metadata.json. The body may be \
            compressed with gzip, zstd or deflate, unless server.compression is none.",
        "parameters": [timeout(), priority()],
        "requestBody": {"required": true, "content": content("PredictRequest")},
        "responses": responses("The scores.", "PredictResponse", reasons),
    })
}

fn explain() -> Value {
    let others = [Reason::AdminOnly, Reason::MethodUnknown];
    let reasons = Reason::ALL.iter().filter(|reason| !others.contains(reason));
    json!({
        "operationId": "explain",
        "summary": "Explains the scores of one user's treatments by the contributions of features.",
        "description": "The request is that of a prediction, with at most 100 treatments. \
            Contributions are SHAP values; models of trees have them (docs/trees.md).",
        "parameters": [timeout(), priority()],
        "requestBody": {"required": true, "content": content("PredictRequest")},
        "responses": responses("The contributions.", "ExplainResponse", reasons),
    })
}

fn list() -> Value {
    json!({
        "operationId": "listModels",
        "summary": "The models that the server knows, without the history of their versions.",
        "parameters": [timeout()],
        "responses": responses("The models.", "Models", &OF_QUERIES),
    })
}

fn show() -> Value {
    let mut name = json!({"name": "name", "in": "path", "required": true});
    name["schema"] = predictions::model_name();
    name["description"] = json!("The model's name, with / as %2F or as it is.");
    let reasons = OF_QUERIES.iter().chain(&[Reason::ModelNotFound]);
    json!({
        "operationId": "getModel",
        "summary": "One model with the history of its versions.",
        "parameters": [name, timeout()],
        "responses": responses("The model.", "Model", reasons),
    })
}

fn described() -> Value {
    let document = json!({"application/json": {"schema": {"type": "object"}}});
    json!({
        "operationId": "getDocument",
        "summary": "This document.",
        "security": [{}],
        "responses": {"200": {"description": "The document.", "content": document}},
    })
}

/// The reasons of failed queries.
const OF_QUERIES: [Reason; 7] = [
    Reason::RequestMalformed,
    Reason::Unauthenticated,
    Reason::PermissionDenied,
    Reason::Overloaded,
    Reason::Deadline,
    Reason::ShuttingDown,
    Reason::Internal,
];

fn timeout() -> Value {
    json!({
        "name": TIMEOUT_HEADER,
        "in": "header",
        "description": "The time that the caller waits, such as 250ms or 2s; without it the \
            server's default holds.",
        "schema": {"type": "string"},
        "example": "250ms",
    })
}

fn priority() -> Value {
    json!({
        "name": priority::HEADER,
        "in": "header",
        "description": "Lowers the priority of the request: it runs only in the room that other \
            predictions leave, and is refused with OVERLOADED if there is none until its deadline.",
        "schema": {"type": "string", "enum": [priority::BATCH]},
    })
}

fn content(schema: &str) -> Value {
    json!({"application/json": {"schema": reference(schema)}})
}

/// A reference to a schema of the document.
fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// The responses of an operation: its success, and a failure for each status of its reasons.
fn responses<'a>(
    description: &str,
    schema: &str,
    reasons: impl IntoIterator<Item = &'a Reason>,
) -> Value {
    let mut responses = Map::new();
    let success = json!({"description": description, "content": content(schema)});
    responses.insert("200".to_owned(), success);
    let mut failures: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for reason in reasons {
        failures.entry(status(*reason)).or_default().push(reason.as_str());
    }
    for (status, reasons) in failures {
        let description = reasons.join(", ");
        let failure = json!({"description": description, "content": content("Error")});
        responses.insert(status.to_string(), failure);
    }
    Value::Object(responses)
}

/// The HTTP status of a failure.
fn status(reason: Reason) -> u16 {
    match reason {
        Reason::EncodingUnsupported => 415,
        _ => reason.code().http_status(),
    }
}

fn error() -> Value {
    let reasons: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let violation = json!({
        "type": "object",
        "required": ["field", "description"],
        "properties": {
            "field": {"type": "string", "description": "The path of the invalid value."},
            "description": {"type": "string"},
        },
    });
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["reason", "message", "details"],
            "properties": {
                "reason": {"type": "string", "enum": reasons, "description": "Stable."},
                "message": {"type": "string", "description": "For people; may change."},
                "details": {"type": "object", "properties": {
                    "violations": {"type": "array", "items": violation},
                    "retry_after_ms": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "The delay after which the request may succeed, in \
                            milliseconds; also, in seconds, the header Retry-After.",
                    },
                }},
            },
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let mut open = vec![&document];
        let mut count = 0;
        while let Some(value) = open.pop() {
            if let Some(target) = value.get("$ref").and_then(Value::as_str) {
                count += 1;
                let pointer = target.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{target}");
            }
            match value {
                Value::Object(members) => open.extend(members.values()),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn a_prediction_has_a_failure_for_every_status_of_its_reasons() {
        let predict = predict();
        let of = |status: &str| predict["responses"][status]["description"].as_str();
        assert!(of("400").unwrap().contains("FEATURE_MISSING"));
        assert_eq!(of("415"), Some("ENCODING_UNSUPPORTED"));
        assert_eq!(of("501"), None, "the path exists");
    }
}
