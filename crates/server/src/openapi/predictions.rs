//! The schemas of a prediction's request and response, which have a JSON form of their own.

use outrigger_proto::outrigger::v1::Arm;
use serde_json::{Map, Value, json};

use super::reference;

/// The schemas by name.
pub(super) fn schemas() -> Map<String, Value> {
    let schemas = [
        ("PredictRequest", request()),
        ("ModelSelector", selector()),
        ("Features", features()),
        ("FeatureValue", value()),
        ("SparseList", sparse()),
        ("ResponseOptions", options()),
        ("PredictResponse", response()),
        ("ServedModel", served()),
        ("Score", score()),
        ("TreatmentError", treatment_error()),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// A model's name.
pub(super) fn model_name() -> Value {
    let segment = r"(?!\.{1,2}(/|$))[a-z0-9._-]+";
    json!({
        "type": "string",
        "maxLength": 200,
        "pattern": format!("^{segment}(/{segment})*$"),
    })
}

/// An object with these keys only.
fn closed(required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    })
}

fn request() -> Value {
    let text = |description: &str| json!({"type": ["string", "null"], "description": description});
    let treatment = closed(
        &[],
        json!({
            "id": text("Returned with its score."),
            "features": reference("Features"),
        }),
    );
    closed(
        &["model"],
        json!({
            "model": reference("ModelSelector"),
            "request_id": text("Free text, returned in the response and written to logs."),
            "routing_key": text("A stable key of an entity, such as the user's id: requests with \
                the same key are answered by the same arm of a canary split."),
            "user": reference("Features"),
            "treatments": {"type": ["array", "null"], "items": treatment},
            "options": reference("ResponseOptions"),
        }),
    )
}

fn selector() -> Value {
    let text = |description: &str| json!({"type": ["string", "null"], "minLength": 1, "description": description});
    let mut schema = closed(
        &["name"],
        json!({
            "name": model_name(),
            "tag": text("A floating tag, such as latest."),
            "digest": text("sha256: and 64 hexadecimal digits."),
        }),
    );
    let given = |key: &str| json!({"required": [key], "properties": {key: {"type": "string"}}});
    schema["not"] = json!({"allOf": [given("tag"), given("digest")]});
    schema["description"] =
        json!("A model and, optionally, one of its versions; without one, the default tag.");
    schema
}

fn features() -> Value {
    json!({
        "type": ["object", "null"],
        "description": "Features by name. The leaves of an object in it are features that are named \
            by their paths, joined by dots. Features that the model does not name are ignored.",
        "additionalProperties": reference("FeatureValue"),
    })
}

fn value() -> Value {
    json!({
        "description": "The value of a feature, whose type metadata.json decides. An array is a \
            vector or a list; null stands for absence. A sparse feature is an object with ids, or \
            names, and a weight for each.",
        "anyOf": [
            {"type": ["number", "string", "boolean", "null"]},
            {"type": "array"},
            reference("SparseList"),
            {"type": "object", "additionalProperties": reference("FeatureValue")},
        ],
    })
}

fn sparse() -> Value {
    let list = |items: Value, description: &str| json!({"type": "array", "items": items, "description": description});
    let mut schema = closed(
        &[],
        json!({
            "ids": list(
                json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
                "Ids, exact up to 2^64 - 1.",
            ),
            "names": list(
                json!({"type": "string"}),
                "In place of ids, if metadata.json has names for them.",
            ),
            "weights": list(
                json!({"type": "number"}),
                "The weight of each id or name; without weights all are 1.",
            ),
        }),
    );
    schema["description"] = json!("Ids, or names, with weights: the value of a sparse feature.");
    schema
}

fn options() -> Value {
    let mut schema = closed(
        &[],
        json!({
            "top_k": {
                "type": "integer",
                "minimum": 0,
                "maximum": u32::MAX,
                "description": "The number of best treatments to return, best first, with their \
                    indices; 0: all, in the order of the request.",
            },
            "treatment_ids": {
                "type": "boolean",
                "default": true,
                "description": "True if the ids of treatments are returned with their scores.",
            },
            "outputs": {
                "type": "array",
                "items": {"type": ["string", "null"]},
                "description": "The names of the outputs to return; the first one is the score. \
                    Empty: all.",
            },
            "on_treatment_error": {
                "type": "string",
                "enum": ["fail", "skip"],
                "default": "fail",
                "description": "The effect of an invalid treatment: the request fails, or the \
                    treatment is left out and reported in treatment_errors.",
            },
        }),
    );
    schema["type"] = json!(["object", "null"]);
    schema
}

/// A list of numbers.
fn numbers(description: &str) -> Value {
    json!({"type": "array", "items": {"type": ["number", "null"]}, "description": description})
}

/// The numbers of an output with several columns.
fn columns() -> Value {
    numbers("All columns of an output with several; one of them is the score.")
}

fn response() -> Value {
    let outputs = json!({
        "type": "object",
        "additionalProperties": {"anyOf": [
            {"type": ["number", "null"]},
            numbers("The value of each treatment, or the columns of the user's output."),
            {"type": "array", "items": numbers("The columns of a treatment's output.")},
        ]},
        "description": "Further outputs by name: a value per treatment in the order of the scores, \
            or one for the user; of an output with several columns, a list of them for each value.",
    });
    let degraded = json!({
        "type": "object",
        "required": ["reason", "used"],
        "properties": {"reason": {"type": "string"}, "used": {"type": "string"}},
        "description": "Set if live answered in place of a failed canary.",
    });
    json!({
        "type": "object",
        "required": ["model"],
        "oneOf": [{"required": ["score"]}, {"required": ["scores"]}],
        "properties": {
            "model": reference("ServedModel"),
            "request_id": {"type": "string"},
            "score": {
                "type": ["number", "null"],
                "description": "The user's score, of an output per user.",
            },
            "values": columns(),
            "scores": {
                "type": "array",
                "items": reference("Score"),
                "description": "The treatments' scores, in the order of the request; with top_k the \
                    best first.",
            },
            "outputs": outputs,
            "degraded": degraded,
            "treatment_errors": {"type": "array", "items": reference("TreatmentError")},
        },
    })
}

fn served() -> Value {
    let arms = [Arm::Live, Arm::Canary, Arm::Pinned];
    let word = |arm: Arm| arm.as_str_name().trim_start_matches("ARM_").to_lowercase();
    json!({
        "type": "object",
        "required": ["name", "digest"],
        "properties": {
            "name": {"type": "string"},
            "digest": {"type": "string", "description": "The digest that the tag names."},
            "platform_digest": {
                "type": "string",
                "description": "The digest of the platform's manifest.",
            },
            "tag": {"type": "string"},
            "arm": {"type": "string", "enum": arms.map(word)},
        },
    })
}

fn score() -> Value {
    json!({
        "type": "object",
        "required": ["score"],
        "properties": {
            "id": {"type": "string", "description": "The treatment's id, if it has one."},
            "index": {
                "type": "integer",
                "minimum": 0,
                "description": "The treatment's index in the request, with top_k or left out \
                    treatments.",
            },
            "score": {"type": ["number", "null"]},
            "values": columns(),
        },
    })
}

fn treatment_error() -> Value {
    json!({
        "type": "object",
        "required": ["index", "reason", "message"],
        "properties": {
            "index": {"type": "integer", "minimum": 0},
            "id": {"type": "string"},
            "feature": {"type": "string"},
            "reason": {"type": "string"},
            "message": {"type": "string"},
        },
    })
}
