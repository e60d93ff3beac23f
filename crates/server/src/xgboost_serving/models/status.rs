//! The states of versions.

use std::{cmp::Reverse, collections::BTreeMap};

use outrigger_core::{Code, Digest, Failure, Reason, Stage};
use outrigger_lifecycle::{FailureView, Handle, ModelView, TagView, VersionView};
use outrigger_proto::tensorflow::serving::{
    ModelSpec, ModelVersionStatus, StatusProto, model_spec::VersionChoice,
    model_version_status::State,
};
use serde_json::{Value, json};

use super::super::version::{self, number};
use crate::views::find;

/// The states of the versions that a specification selects: one, or all, the highest first.
///
/// # Errors
/// `REQUEST_MALFORMED`, `MODEL_NOT_FOUND`, `TAG_NOT_FOUND`.
pub(in super::super) fn states(
    models: &Handle,
    spec: &ModelSpec,
) -> Result<Vec<ModelVersionStatus>, Failure> {
    let (name, view) = find(models, &version::name(&spec.name))?;
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
    let known = all.into_iter().filter_map(|(number, digest)| {
        view.versions.get(&digest).map(|version| state(number, version))
    });
    let mut states: Vec<_> = known.chain(refused(&view, spec.version_choice.as_ref())).collect();
    states.sort_by_key(|state| Reverse(state.version));
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
pub(super) fn digest(tag: &TagView) -> Option<Digest> {
    tag.serving.or(tag.registry)
}

/// The versions that their source could not give, such as files that are no model, with the reasons.
fn refused(view: &ModelView, choice: Option<&VersionChoice>) -> Vec<ModelVersionStatus> {
    let is_wanted = |tag: &str| match choice {
        None => number(tag).is_some(),
        Some(VersionChoice::Version(number)) => *tag == number.to_string(),
        Some(VersionChoice::VersionLabel(label)) => tag == label,
    };
    let tags =
        view.tags.iter().filter(|(tag, shown)| is_wanted(tag.as_str()) && digest(shown).is_none());
    let status = tags.filter_map(|(tag, shown)| {
        Some(ModelVersionStatus {
            version: number(tag.as_str()).unwrap_or_default(),
            state: State::End.into(),
            status: Some(problem(shown.failure.as_ref()?)),
        })
    });
    status.collect()
}

fn problem(view: &FailureView) -> StatusProto {
    StatusProto {
        error_code: view.failure.reason.code() as i32,
        error_message: view.failure.to_string(),
    }
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
        Some(view) if state == State::End => problem(view),
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

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn version(stage: Stage, activity: &'static str, failed: bool) -> VersionView {
        let failure = || FailureView {
            failure: Failure::new(Reason::GoldenMismatch, "other scores"),
            at: UNIX_EPOCH,
            permanent: true,
            retry_at: None,
        };
        VersionView {
            digest: Digest::of(b"a"),
            platform_digest: None,
            stage,
            activity,
            engine: None,
            servable: None,
            size_bytes: 0,
            last_used_at: None,
            failure: failed.then(failure),
            replayed: None,
            history: Vec::new(),
        }
    }

    #[test]
    fn stages_are_states() {
        for (stage, activity, failed, expected, code) in [
            (Stage::New, "pulling", false, State::Start, 0),
            (Stage::Downloaded, "loading", false, State::Loading, 0),
            (Stage::Loaded, "loading", false, State::Loading, 0),
            (Stage::Available, IDLE, false, State::Available, 0),
            (Stage::Available, IDLE, true, State::Available, 0),
            (Stage::Downloaded, IDLE, false, State::End, 0),
            (Stage::Downloaded, "backoff", true, State::End, 9),
        ] {
            let found = state(7, &version(stage, activity, failed));
            let status = found.status.clone().unwrap_or_default();
            assert_eq!((found.state(), status.error_code), (expected, code), "{stage} {activity}");
        }
        let failed = [state(7, &version(Stage::Downloaded, "backoff", true))];
        let expected = json!({"model_version_status": [{
            "version": "7",
            "state": "END",
            "status": {
                "error_code": "FAILED_PRECONDITION",
                "error_message": "GOLDEN_MISMATCH: other scores",
            },
        }]});
        assert_eq!(statuses(&failed), expected);
    }

    #[test]
    fn a_version_without_a_number_has_the_number_0() {
        let [one, other] = [b"1", b"2"].map(|content| Digest::of(content));
        let tag = |name: &str, serving, registry| {
            (name.parse().unwrap(), TagView { serving, registry, ..TagView::default() })
        };
        let tags = [
            tag("7", Some(one), None),
            tag("8", None, Some(one)),
            tag("latest", Some(one), None),
            tag("stable", Some(other), None),
            tag("9", None, None),
        ];
        let view = ModelView { tags: tags.into(), ..ModelView::default() };
        assert_eq!(numbered(&view), [(0, other), (7, one), (8, one)]);
        assert_eq!(of_tag(&view, "stable"), [(0, other)]);
        assert_eq!(of_tag(&view, "latest"), [(8, one)]);
        assert_eq!(of_tag(&view, "9"), []);
        assert!(refused(&view, None).is_empty(), "no reason is known");
    }

    #[test]
    fn a_version_that_its_source_refused_is_at_its_end_with_the_reason() {
        let failure = version(Stage::New, IDLE, true).failure;
        let tag = |name: &str| {
            (name.parse().unwrap(), TagView { failure: failure.clone(), ..TagView::default() })
        };
        let view = ModelView { tags: [tag("9"), tag("stable")].into(), ..ModelView::default() };
        for choice in [None, Some(VersionChoice::Version(9))] {
            let [status] = &refused(&view, choice.as_ref())[..] else { panic!("one version") };
            assert_eq!((status.version, status.state()), (9, State::End));
            let message = &status.status.as_ref().unwrap().error_message;
            assert_eq!(message, "GOLDEN_MISMATCH: other scores");
        }
        let label = VersionChoice::VersionLabel("stable".into());
        assert_eq!(refused(&view, Some(&label))[0].version, 0);
        assert!(refused(&view, Some(&VersionChoice::Version(8))).is_empty());
    }
}
