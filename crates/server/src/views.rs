//! Models in the form of `outrigger.v1`, and the JSON that is derived from it.

use std::{collections::BTreeSet, sync::Arc};

use outrigger_budget::Budget;
use outrigger_core::{EngineId, Failure, ModelName, Reason, Stage};
use outrigger_lifecycle::{
    EngineView, FailureView, Handle, ModelView, Replayed, TagCanaryView, TagView, TransitionView,
    VersionView,
};
use outrigger_proto::outrigger::v1::{
    self as wire, Model, ModelVersion, Tag, TagCanary, Transition, model_version,
};
use prost_types::Timestamp;
use serde_json::{Value, json};

use crate::{canary_views::phase, routing};

/// Selects views with or without the transitions of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum History {
    Included,
    Omitted,
}

/// Finds the current state of a model by its name.
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

/// A model with the engines of its versions and the accounts of `budget` that have no room for
/// them, in the form of `outrigger.v1`.
///
/// # Errors
/// Those of [`find`].
pub(crate) fn described(models: &Handle, budget: &Budget, name: &str) -> Result<Model, Failure> {
    let (name, view) = find(models, name)?;
    let engines: BTreeSet<_> = view.versions.values().filter_map(|it| it.engine.as_ref()).collect();
    let snapshot = models.models();
    let engines = engines.into_iter().filter_map(|id| Some(engine(id, snapshot.engines.get(id)?)));
    let mut model = Model { engines: engines.collect(), ..model(&name, &view, History::Included) };
    for (version, view) in model.versions.iter_mut().zip(view.versions.values()) {
        version.memory_shortage = memory_shortage(view, budget);
    }
    Ok(model)
}

/// The account that the version waits for, or else the one that refused it.
fn memory_shortage(view: &VersionView, budget: &Budget) -> Option<wire::MemoryShortage> {
    let accounts = budget.accounts();
    let awaited = accounts.iter().find(|account| account.is_awaited_by(&view.digest));
    let refusing = view.failure.as_ref().and_then(|view| view.failure.account);
    let refusing = accounts.iter().find(|account| Some(account.name()) == refusing);
    let account = awaited.or(refusing)?;
    Some(wire::MemoryShortage {
        account: account.name().to_owned(),
        waiting: awaited.is_some(),
        used_bytes: account.used(),
        limit_bytes: account.limit(),
    })
}

fn engine(id: &EngineId, view: &EngineView) -> wire::Engine {
    wire::Engine {
        name: id.to_string(),
        reachable: view.reachable,
        failure: view.failure.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// A model in the form of `outrigger.v1`.
pub(crate) fn model(name: &ModelName, view: &ModelView, history: History) -> Model {
    Model {
        name: name.to_string(),
        tags: view.tags.iter().map(|(name, view)| tag(name.as_str(), view)).collect(),
        versions: view.versions.values().map(|view| version(view, history)).collect(),
        engines: Vec::new(),
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
        engine: view.engine.as_ref().map(ToString::to_string).unwrap_or_default(),
        memory_shortage: None,
    }
}

fn replay(view: &Replayed) -> wire::Replay {
    wire::Replay {
        answered: view.answered,
        skipped: view.skipped,
        failed: view.failed,
        failure: view.failure.as_ref().map(ToString::to_string).unwrap_or_default(),
        // The conversion fails only for durations longer than any warm-up.
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

/// A model in the form of the HTTP surface: its `outrigger.v1` form as JSON, and its image.
pub(crate) fn model_json(name: &ModelName, view: &ModelView, history: History) -> Value {
    let mut json = json!(model(name, view, history));
    json["image"] = json!(view.image);
    if history == History::Omitted {
        let versions = json["versions"].as_array_mut().into_iter().flatten();
        versions.filter_map(Value::as_object_mut).for_each(|version| {
            version.remove("history");
        });
    }
    json
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use outrigger_budget::Owner;
    use outrigger_core::{Digest, ServableId};
    use outrigger_lifecycle::CanaryPhase;

    use super::*;

    fn view() -> ModelView {
        let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        let digest = Digest::of(b"a");
        let failure = FailureView {
            failure: Failure::new(Reason::GoldenMismatch, "why"),
            at,
            permanent: true,
            retry_at: None,
        };
        let canary = TagCanaryView {
            tag: "canary".parse().unwrap(),
            digest,
            phase: CanaryPhase::WarmingUp,
            message: String::new(),
        };
        let tag = TagView { registry: Some(digest), canary: Some(canary), ..TagView::default() };
        let version = VersionView {
            engine: Some(EngineId::default()),
            digest,
            platform_digest: None,
            stage: Stage::Downloaded,
            activity: "idle",
            servable: None::<ServableId>,
            size_bytes: 7,
            last_used_at: Some(at),
            failure: Some(failure),
            replayed: Some(Replayed {
                answered: 1,
                took: Duration::from_millis(1500),
                ..Replayed::default()
            }),
            history: vec![TransitionView {
                at,
                from: Stage::New,
                to: Stage::Downloaded,
                cause: "asked for".to_owned(),
            }],
        };
        ModelView {
            image: "r.example/churn".to_owned(),
            tags: [("latest".parse().unwrap(), tag)].into(),
            versions: [(digest, version)].into(),
        }
    }

    #[tokio::test]
    async fn a_version_names_the_account_that_it_waits_for_or_that_refused_it() {
        let budget = Budget::new(1 << 20);
        let (digest, view) = view().versions.pop_first().unwrap();
        let shown = |view: &VersionView| {
            let shortage = memory_shortage(view, &budget)?;
            assert!(shortage.used_bytes <= shortage.limit_bytes);
            Some((shortage.account, shortage.waiting, shortage.limit_bytes))
        };
        assert_eq!(shown(&view), None, "it failed for another reason");

        let failure = budget.plans.charge(Owner::of(&"a"), 1 << 20).unwrap_err();
        let failure = FailureView { failure, ..view.failure.clone().unwrap() };
        let view = VersionView { failure: Some(failure), ..view };
        let plans = budget.plans.limit();
        assert_eq!(shown(&view), Some(("plans".to_owned(), false, plans)));

        let all = budget.packages.limit();
        let held = budget.packages.wait(Digest::of(b"b"), all).await.unwrap();
        let mut waiting = Box::pin(budget.packages.wait(digest, 1));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(shown(&view), Some(("packages".to_owned(), true, all)));
        drop(held);
        waiting.await.unwrap();
        assert_eq!(shown(&view), Some(("plans".to_owned(), false, plans)));
    }

    /// Checks the contract of `GET /v1/models/NAME`, key by key.
    #[test]
    fn a_model_as_json_keeps_its_keys() {
        let digest = Digest::of(b"a").to_string();
        let at = "2023-11-14T22:13:20.250Z";
        let expected = json!({
            "name": "churn",
            "image": "r.example/churn",
            "tags": [{
                "name": "latest",
                "serving_digest": null,
                "registry_digest": digest,
                "checked_at": null,
                "failure": null,
                "canary": {"tag": "canary", "digest": digest, "phase": "warming_up", "message": ""},
            }],
            "versions": [{
                "digest": digest,
                "platform_digest": null,
                "state": "downloaded",
                "activity": "idle",
                "servable": null,
                "servable_version": null,
                "size_bytes": 7,
                "last_used_at": at,
                "failure": {
                    "reason": "GOLDEN_MISMATCH",
                    "message": "why",
                    "at": at,
                    "permanent": true,
                    "retry_at": null,
                },
                "replay": {
                    "answered": 1,
                    "skipped": 0,
                    "failed": 0,
                    "failure": null,
                    "took_seconds": 1.5,
                },
                "engine": "default",
                "history": [{"at": at, "from": "new", "to": "downloaded", "cause": "asked for"}],
            }],
        });
        let name = "churn".parse().unwrap();
        assert_eq!(model_json(&name, &view(), History::Included), expected);
        let listed = model_json(&name, &view(), History::Omitted);
        assert!(listed["versions"][0].get("history").is_none(), "{listed}");
        assert_eq!(listed["versions"][0]["state"], "downloaded");
    }
}
