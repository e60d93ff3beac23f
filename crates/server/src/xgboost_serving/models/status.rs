//! The states of versions.

use std::collections::BTreeMap;

use outrigger_core::{Code, Digest, Failure, Reason, Stage};
use outrigger_lifecycle::{Handle, ModelView, TagView, VersionView};
use outrigger_proto::tensorflow::serving::{
    ModelSpec, ModelVersionStatus, StatusProto, model_spec::VersionChoice,
    model_version_status::State,
};
use serde_json::{Value, json};

use super::super::version::number;
use crate::views::find;

/// The states of the versions that a specification selects: one, or all, the highest first.
///
/// # Errors
/// `REQUEST_MALFORMED`, `MODEL_NOT_FOUND`, `TAG_NOT_FOUND`.
pub(in super::super) fn states(
    models: &Handle,
    spec: &ModelSpec,
) -> Result<Vec<ModelVersionStatus>, Failure> {
    let (name, view) = find(models, &spec.name)?;
    let (all, wanted) = match &spec.version_choice {
        None => (numbered(&view), "version".to_owned()),
        Some(VersionChoice::Version(number)) => {
            let tag = number.to_string();
            (of_tag(&view, &tag), format!("version {tag}"))
        }
        Some(VersionChoice::VersionLabel(label)) => {
            (of_tag(&view, label), format!("version with the label {label:?}"))
        }
    };
    let states: Vec<_> = all.into_iter().rev().filter_map(|(number, digest)| {
        view.versions.get(&digest).map(|version| state(number, version))
    }).collect();
    match states.is_empty() {
        false => Ok(states),
        true => {
            let message = format!("no {wanted} of {name} is known");
            Err(Failure::new(Reason::TagNotFound, message))
        }
    }
}

/// The versions of a model by number. One whose tags are no numbers has the number 0.
fn numbered(view: &ModelView) -> Vec<(i64, Digest)> {
    let mut all: BTreeMap<i64, Digest> = BTreeMap::new();
    let mut named: Vec<Digest> = Vec::new();
    for (tag, shown) in &view.tags {
        let Some(digest) = digest(shown) else { continue };
        match number(tag.as_str()) {
            Some(number) => drop(all.insert(number, digest)),
            None => named.push(digest),
        }
    }
    named.retain(|digest| !all.values().any(|other| other == digest));
    named.sort();
    named.dedup();
    named.into_iter().map(|digest| (0, digest)).chain(all).collect()
}

fn of_tag(view: &ModelView, tag: &str) -> Vec<(i64, Digest)> {
    let shown = view.tags.iter().find(|(name, _)| name.as_str() == tag);
    let Some(digest) = shown.and_then(|(_, shown)| digest(shown)) else { return Vec::new() };
    let same = numbered(view).into_iter().filter(|(_, other)| *other == digest);
    let number = number(tag).or_else(|| same.map(|(number, _)| number).max());
    vec![(number.unwrap_or_default(), digest)]
}

/// The version that answers for a tag, or else the one that its source names.
fn digest(tag: &TagView) -> Option<Digest> {
    tag.serving.or(tag.registry)
}

fn state(number: i64, version: &VersionView) -> ModelVersionStatus {
    let failure = version.failure.as_ref();
    let state = match (version.stage, failure) {
        (Stage::Available, _) => State::Available,
        (Stage::Loaded, _) => State::Loading,
        (Stage::New | Stage::Downloaded, Some(_)) => State::End,
        // It is loaded when it is asked for.
        (Stage::New | Stage::Downloaded, None) if version.activity == IDLE => State::End,
        (Stage::New, None) => State::Start,
        (Stage::Downloaded, None) => State::Loading,
    };
    let status = match failure {
        Some(view) if state == State::End => StatusProto {
            error_code: view.failure.reason.code() as i32,
            error_message: view.failure.to_string(),
        },
        _ => StatusProto::default(),
    };
    ModelVersionStatus { version: number, state: state.into(), status: Some(status) }
}

/// The activity of a version with which nothing happens.
const IDLE: &str = "idle";

/// The states as the JSON of XGBoost Serving's REST interface.
pub(in super::super) fn statuses(states: &[ModelVersionStatus]) -> Value {
    let status = |it: &ModelVersionStatus| {
        let status = it.status.clone().unwrap_or_default();
        json!({
            "version": it.version.to_string(),
            "state": it.state().as_str_name(),
            "status": {
                "error_code": code_name(status.error_code),
                "error_message": status.error_message,
            },
        })
    };
    json!({"model_version_status": states.iter().map(status).collect::<Vec<_>>()})
}

/// The name of a gRPC status code.
fn code_name(code: i32) -> &'static str {
    const NAMES: [(Code, &str); 11] = [
        (Code::Cancelled, "CANCELLED"),
        (Code::InvalidArgument, "INVALID_ARGUMENT"),
        (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
        (Code::NotFound, "NOT_FOUND"),
        (Code::PermissionDenied, "PERMISSION_DENIED"),
        (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
        (Code::FailedPrecondition, "FAILED_PRECONDITION"),
        (Code::Unimplemented, "UNIMPLEMENTED"),
        (Code::Internal, "INTERNAL"),
        (Code::Unavailable, "UNAVAILABLE"),
        (Code::Unauthenticated, "UNAUTHENTICATED"),
    ];
    NAMES.iter().find(|(known, _)| *known as i32 == code).map_or("OK", |(_, name)| name)
}
