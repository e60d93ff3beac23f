//! The public views of models and engines.

use std::collections::BTreeMap;

use outrigger_core::{
    EngineId, ModelName, Moment, Selector,
    machines::{Machines, TagKey},
    model::{ModelMachine, Transition, Trouble},
    tags::TagMachine,
};

use super::{inputs::Inputs, routing::Routing};
use crate::{
    engines::Engines,
    snapshot::{EngineView, FailureView, ModelView, TagView, TransitionView, VersionView},
};
use outrigger_run::{Clock, Location};

pub(super) fn engines(machines: &Machines, engines: &Engines) -> BTreeMap<EngineId, EngineView> {
    let views = machines.engines().iter().map(|(id, condition)| {
        let location = engines.get(id).map(|engine| engine.location());
        let view = EngineView {
            in_process: location == Some(Location::InProcess),
            reachable: condition.is_reachable(),
            restarts: condition.restarts,
            reloading: condition.reloading,
            failure: condition.failure.clone(),
        };
        (id.clone(), view)
    });
    views.collect()
}

/// The public view of a model; `None` if it is unknown.
pub(super) fn model(name: &ModelName, inputs: &Inputs<'_>, routing: &Routing) -> Option<ModelView> {
    let Inputs { world, machines, now, .. } = *inputs;
    let versions = machines.models_of(name);
    let versions = versions.map(|model| (model.key().digest, version(model, inputs, routing)));
    // A missing canary tag is normal and not shown.
    let named = |(_, tag): &(&TagKey, &TagMachine)| {
        let nobody = tag.is_accompanying() && !tag.is_wanted(machines.policy(), now);
        !nobody || tag.registry().or(tag.serving()).is_some()
    };
    let tags = machines.tags_of(name).filter(named);
    let tags = tags.map(|(key, machine)| (key.tag.clone(), tag(key, machine, inputs)));
    let mut view =
        ModelView { image: String::new(), tags: tags.collect(), versions: versions.collect() };
    if view.tags.is_empty() && view.versions.is_empty() {
        return None;
    }
    let location = world.names.load().location(name);
    view.image = location.map(|location| location.to_string()).unwrap_or_default();
    Some(view)
}

fn version(model: &ModelMachine, inputs: &Inputs<'_>, routing: &Routing) -> VersionView {
    let Inputs { versions, clock, .. } = *inputs;
    let key = model.key();
    let kept = versions.kept.get(key);
    let used = routing.last_used(&key.name, &Selector::Digest(key.digest));
    let used = used.max(model.asked_at()).max(tag_use(model, inputs.machines, routing));
    VersionView {
        digest: key.digest,
        platform_digest: kept.map(|kept| kept.platform_digest),
        stage: model.stage(),
        activity: inputs.machines.activity_of(model),
        engine: inputs.machines.engine_of(key).cloned(),
        servable: model.state().servable().cloned(),
        size_bytes: kept.map_or(0, |kept| kept.size),
        last_used_at: used.map(|at| clock.wall(at)),
        failure: model.trouble().map(|trouble| failure(trouble, clock)),
        replayed: versions.replayed.get(key).cloned(),
        history: model.history().map(|it| transition(it, clock)).collect(),
    }
}

/// The last request by a tag that refers to the version.
fn tag_use(model: &ModelMachine, machines: &Machines, routing: &Routing) -> Option<Moment> {
    let key = model.key();
    let tags = machines.tags_of(&key.name);
    let tags = tags.filter(|(_, machine)| machine.serving() == Some(key.digest));
    let used =
        tags.filter_map(|(tag, _)| routing.last_used(&tag.name, &Selector::Tag(tag.tag.clone())));
    used.max()
}

fn tag(key: &TagKey, tag: &TagMachine, inputs: &Inputs<'_>) -> TagView {
    let Inputs { machines, trials, clock, now, .. } = *inputs;
    TagView {
        serving: tag.serving(),
        registry: tag.registry(),
        followed: tag.is_followed(machines.policy(), now),
        checked_at: tag.checked_at().map(|at| clock.wall(at)),
        failure: tag.trouble().map(|trouble| failure(trouble, clock)),
        canary: trials.canary_of(key),
    }
}

fn failure(trouble: &Trouble, clock: Clock) -> FailureView {
    FailureView {
        failure: trouble.failure.clone(),
        at: clock.wall(trouble.at),
        permanent: trouble.retry_at.is_none(),
        retry_at: trouble.retry_at.map(|at| clock.wall(at)),
    }
}

fn transition(transition: &Transition, clock: Clock) -> TransitionView {
    TransitionView {
        at: clock.wall(transition.at),
        from: transition.from,
        to: transition.to,
        cause: transition.cause.clone().into_owned(),
    }
}
