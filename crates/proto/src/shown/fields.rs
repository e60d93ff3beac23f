//! The form that messages of `outrigger.v1` have as JSON, by message and field: for the build, which
//! generates their serialisation, and for the schema of the HTTP interface.

/// Messages that serialise as JSON, with the messages nested in them.
pub const MESSAGES: [&str; 10] = [
    "Model",
    "Tag",
    "TagCanary",
    "ModelVersion",
    "Replay",
    "Failure",
    "Transition",
    "Canary",
    "CanaryVerdict",
    "CanaryDecision",
];

/// Functions of [`super`] by name, and the fields that they serialise.
pub const SHOWN_BY: [(&str, &[&str]); 7] = [
    (
        "text",
        &[
            "Tag.serving_digest",
            "Tag.registry_digest",
            "ModelVersion.platform_digest",
            "ModelVersion.servable",
            "ModelVersion.engine",
            "Replay.failure",
            "Canary.live_digest",
            "CanaryDecision.live_digest",
        ],
    ),
    ("number", &["ModelVersion.servable_version"]),
    (
        "time",
        &[
            "Tag.checked_at",
            "ModelVersion.last_used_at",
            "Failure.at",
            "Failure.retry_at",
            "Transition.at",
            "CanaryDecision.at",
        ],
    ),
    ("seconds", &["Replay.took", "Canary.elapsed"]),
    ("state", &["ModelVersion.state", "Transition.from", "Transition.to"]),
    ("phase", &["TagCanary.phase", "Canary.phase"]),
    ("outcome", &["CanaryDecision.outcome"]),
];

/// Fields whose JSON key differs from their name.
pub const RENAMED: [(&str, &str); 1] = [("Replay.took", "took_seconds")];

/// Fields that the JSON does not have.
pub const OMITTED: [&str; 2] = ["Model.engines", "ModelVersion.memory_shortage"];
