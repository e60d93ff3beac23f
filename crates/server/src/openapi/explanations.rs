//! The schemas of an explanation, which has a JSON form of its own.

use serde_json::{Map, Value, json};

use super::reference;

/// The schemas by name.
pub(super) fn schemas() -> Map<String, Value> {
    let schemas = [
        ("ExplainResponse", response()),
        ("ContributingFeature", feature()),
        ("ExplainedTreatment", treatment()),
        ("ExplainedMargin", margin()),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn response() -> Value {
    json!({
        "type": "object",
        "required": ["model", "features"],
        "oneOf": [{"required": ["treatments"]}, {"required": ["margins"]}],
        "properties": {
            "model": reference("ServedModel"),
            "request_id": {"type": "string"},
            "features": {
                "type": "array",
                "items": reference("ContributingFeature"),
                "description": "The features in the order of the model's columns. Empty if the rows \
                    are sparse.",
            },
            "columns": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "description": "If the rows are sparse, the ids of the columns that the \
                    contributions are of, ascending. All others have the contribution 0.",
            },
            "treatments": {
                "type": "array",
                "items": reference("ExplainedTreatment"),
                "description": "The treatments in the order of the request.",
            },
            "margins": margins("The margins of the user, of a model that scores users."),
            "treatment_errors": {"type": "array", "items": reference("TreatmentError")},
        },
    })
}

fn feature() -> Value {
    json!({
        "type": "object",
        "required": ["feature", "entity", "offset", "length"],
        "properties": {
            "feature": {"type": "string"},
            "entity": {"type": "string", "enum": ["user", "treatment"]},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "The first of its columns in the contributions to a margin.",
            },
            "length": {"type": "integer", "minimum": 1, "description": "Its number of columns."},
        },
    })
}

fn treatment() -> Value {
    json!({
        "type": "object",
        "required": ["margins"],
        "properties": {
            "id": {"type": "string", "description": "The treatment's id, if it has one."},
            "index": {
                "type": "integer",
                "minimum": 0,
                "description": "The treatment's index in the request, if others were left out.",
            },
            "margins": margins("One margin, or one for each class or target of the model."),
        },
    })
}

fn margins(description: &str) -> Value {
    json!({"type": "array", "items": reference("ExplainedMargin"), "description": description})
}

fn margin() -> Value {
    json!({
        "type": "object",
        "required": ["base", "contributions"],
        "properties": {
            "base": {
                "type": "number",
                "description": "The mean margin in the model's training.",
            },
            "contributions": {
                "type": "array",
                "items": {"type": "number"},
                "description": "The contribution of each column. With the base they add up to the \
                    margin, the score before the model's last transformation.",
            },
        },
    })
}
