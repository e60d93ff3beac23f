//! What lifecycle knows of models, as `outrigger.v1` and as JSON say it.

use std::{sync::Arc, time::SystemTime};

use outrigger_core::{Failure, ModelName, Reason, Stage};
use outrigger_lifecycle::{
    FailureView, Handle, ModelView, Replayed, TagCanaryView, TagView, TransitionView, VersionView,
};
use outrigger_proto::outrigger::v1::{
    self as wire, Model, ModelVersion, Tag, TagCanary, Transition, model_version,
};
use prost_types::Timestamp;
use serde_json::{Value, json};

use crate::{canary_views::phase, routing};

/// Whether the transitions of versions are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum History {
    Included,
    Omitted,
}

/// The model of that name as it is now.
///
/// # Errors
/// `REQUEST_MALFORMED` for an invalid name, `MODEL_NOT_FOUND` for an unknown one.
pub(crate) fn find(models: &Handle, name: &str) -> Result<(ModelName, Arc<ModelView>), Failure> {
    let name: ModelName =
        name.parse().map_err(|error| routing::invalid("name", &format!("{error}")))?;
    match models.models().models.get(&name) {
        Some(view) => Ok((name, Arc::clone(view))),
        None => Err(Failure::new(Reason::ModelNotFound, format!("no model {name} is known"))),
    }
}

/// A model as `outrigger.v1` has it.
pub(crate) fn model(name: &ModelName, view: &ModelView, history: History) -> Model {
    Model {
        name: name.to_string(),
        tags: view.tags.iter().map(|(name, view)| tag(name.as_str(), view)).collect(),
        versions: view.versions.values().map(|view| version(view, history)).collect(),
    }
}

fn tag(name: &str, view: &TagView) -> Tag {
    Tag {
        name: name.to_owned(),
        serving_digest: view.serving.map(|digest| digest.to_string()).unwrap_or_default(),
        registry_digest: view.registry.map(|digest| digest.to_string()).unwrap_or_default(),
        checked_at: view.checked_at.map(Timestamp::from),
        failure: view.failure.as_ref().map(failure),
        canary: view.canary.as_ref().map(canary),
    }
}

fn canary(view: &TagCanaryView) -> TagCanary {
    TagCanary {
        tag: view.tag.to_string(),
        digest: view.digest.to_string(),
        phase: phase(view.phase).into(),
        message: view.message.clone(),
    }
}

fn version(view: &VersionView, history: History) -> ModelVersion {
    let transitions = match history {
        History::Included => view.history.iter().map(transition).collect(),
        History::Omitted => Vec::new(),
    };
    let servable = view.servable.as_ref();
    ModelVersion {
        digest: view.digest.to_string(),
        platform_digest: view.platform_digest.map(|d| d.to_string()).unwrap_or_default(),
        state: state(view.stage).into(),
        activity: view.activity.to_owned(),
        servable: servable.map(|id| id.name.to_string()).unwrap_or_default(),
        servable_version: servable.map(|id| id.version.0).unwrap_or_default(),
        size_bytes: view.size_bytes,
        last_used_at: view.last_used_at.map(Timestamp::from),
        failure: view.failure.as_ref().map(failure),
        history: transitions,
        replay: view.replayed.as_ref().map(replay),
    }
}

fn replay(view: &Replayed) -> wire::Replay {
    wire::Replay {
        answered: view.answered,
        skipped: view.skipped,
        failed: view.failed,
        failure: view.failure.as_ref().map(ToString::to_string).unwrap_or_default(),
        // No warm-up lasts longer than there are seconds.
        took: prost_types::Duration::try_from(view.took).ok(),
    }
}

fn failure(view: &FailureView) -> wire::Failure {
    wire::Failure {
        reason: view.failure.reason.to_string(),
        message: view.failure.message.clone(),
        at: Some(Timestamp::from(view.at)),
        permanent: view.permanent,
        retry_at: view.retry_at.map(Timestamp::from),
    }
}

fn transition(view: &TransitionView) -> Transition {
    Transition {
        at: Some(Timestamp::from(view.at)),
        from: state(view.from).into(),
        to: state(view.to).into(),
        cause: view.cause.clone(),
    }
}

fn state(stage: Stage) -> model_version::State {
    match stage {
        Stage::New => model_version::State::New,
        Stage::Downloaded => model_version::State::Downloaded,
        Stage::Loaded => model_version::State::Loaded,
        Stage::Available => model_version::State::Available,
    }
}

/// A model as the HTTP surface has it.
pub(crate) fn model_json(name: &ModelName, view: &ModelView, history: History) -> Value {
    let tags: Vec<_> = view.tags.iter().map(|(name, view)| tag_json(name.as_str(), view)).collect();
    let versions: Vec<_> = view.versions.values().map(|view| version_json(view, history)).collect();
    json!({"name": name, "image": view.image, "tags": tags, "versions": versions})
}

fn tag_json(name: &str, view: &TagView) -> Value {
    json!({
        "name": name,
        "serving_digest": view.serving,
        "registry_digest": view.registry,
        "checked_at": view.checked_at.map(time),
        "failure": view.failure.as_ref().map(failure_json),
        "canary": view.canary.as_ref().map(canary_json),
    })
}

fn canary_json(view: &TagCanaryView) -> Value {
    json!({
        "tag": view.tag,
        "digest": view.digest,
        "phase": view.phase.as_str(),
        "message": view.message,
    })
}

fn version_json(view: &VersionView, history: History) -> Value {
    let mut version = json!({
        "digest": view.digest,
        "platform_digest": view.platform_digest,
        "state": view.stage.as_str(),
        "activity": view.activity,
        "servable": view.servable.as_ref().map(|id| id.name.as_str()),
        "servable_version": view.servable.as_ref().map(|id| id.version),
        "size_bytes": view.size_bytes,
        "last_used_at": view.last_used_at.map(time),
        "failure": view.failure.as_ref().map(failure_json),
        "replay": view.replayed.as_ref().map(replay_json),
    });
    if history == History::Included {
        version["history"] = view.history.iter().map(transition_json).collect();
    }
    version
}

fn replay_json(view: &Replayed) -> Value {
    json!({
        "answered": view.answered,
        "skipped": view.skipped,
        "failed": view.failed,
        "failure": view.failure.as_ref().map(ToString::to_string),
        "took_seconds": view.took.as_secs_f64(),
    })
}

fn failure_json(view: &FailureView) -> Value {
    json!({
        "reason": view.failure.reason,
        "message": view.failure.message,
        "at": time(view.at),
        "permanent": view.permanent,
        "retry_at": view.retry_at.map(time),
    })
}

fn transition_json(view: &TransitionView) -> Value {
    json!({
        "at": time(view.at),
        "from": view.from.as_str(),
        "to": view.to.as_str(),
        "cause": view.cause,
    })
}

/// RFC 3339 in UTC, milliseconds.
fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}
