//! The invariants of the machines, written once. They are checked after every event in debug
//! builds, and by the property and model tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    EngineId, ModelKey, ModelName, Moment, ServableId,
    machines::{Effect, Machines},
    model::{self, ModelMachine, State},
};

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A version is routed although it is not up or has not passed the gate.
    RoutedTooEarly(ModelKey),
    /// A version with a live route is missing from the engine's configuration.
    RemovedInUse(ServableId),
    /// Two model versions share a servable.
    SharedServable(ServableId),
    /// A servable has a version number that was never assigned.
    UnknownVersion(ServableId),
    /// Files may be deleted although the engine may still have them in its configuration.
    FilesInEngine(ServableId),
    /// A version is in an engine, but the record of which one is missing.
    Unplaced(ModelKey),
    /// Files of a version that a followed tag keeps up are deleted.
    DeletedWhileHeld(ModelKey),
    /// Two versions of a model are in an engine that may have one of them at a time.
    Together(ModelKey, ModelKey),
    /// The facts kept about a model differ from its machines.
    Drift(ModelName),
}

/// Checks every invariant of the machines by themselves.
pub fn check(machines: &Machines, now: Moment) -> Result<(), Violation> {
    for model in machines.models() {
        only_gated_versions_are_routed(model)?;
        versions_in_an_engine_are_placed(machines, model)?;
    }
    versions_are_replaced(machines)?;
    machines.drift(now).map_or(Ok(()), |name| Err(Violation::Drift(name)))?;
    servables_belong_to_one_model(machines)?;
    messages_keep_versions(machines)
}

/// The invariants of [`check_engine`] by the messages to and from all engines, which debug builds
/// record: no loop over the models is nested, so that tests with many models stay fast.
fn messages_keep_versions(machines: &Machines) -> Result<(), Violation> {
    let Some(exchanged) = machines.exchanged() else { return Ok(()) };
    for model in machines.models() {
        live_routes_stay_configured(|id| exchanged.wants(id), model)?;
    }
    versions_are_given_out_once(machines, exchanged.mentioned())?;
    configured_files_stay(machines, exchanged.mentioned())
}

/// The versions that an engine has, or may have, in its configuration.
pub trait EngineVersions {
    /// Whether `id` is in the configuration wanted for the engine.
    fn wants(&self, id: &ServableId) -> bool;
    /// Every version that may be in the engine's configuration, now or soon.
    fn mentioned(&self) -> BTreeSet<ServableId>;
}

/// Checks every invariant of the machines together with one of their engines.
pub fn check_engine(
    machines: &Machines,
    engine: &EngineId,
    versions: &impl EngineVersions,
) -> Result<(), Violation> {
    let mentioned = versions.mentioned();
    let placed = |model: &&ModelMachine| machines.engine_of(model.key()) == Some(engine);
    for model in machines.models().filter(placed) {
        live_routes_stay_configured(|id| versions.wants(id), model)?;
    }
    let owned = mentioned.iter().filter(|id| machines.owner(id).is_some());
    configured_files_stay(machines, owned)?;
    versions_are_given_out_once(machines, mentioned.iter())
}

/// Checks that an effect breaks no invariant.
pub fn check_effect(machines: &Machines, now: Moment, effect: &Effect) -> Result<(), Violation> {
    match effect {
        Effect::Model(key, model::Effect::Delete(_))
            if machines.held_of(&key.name, now).any(|held| held == *key) =>
        {
            let by_hand = machines.model(key).is_some_and(ModelMachine::is_suspended);
            if by_hand { Ok(()) } else { Err(Violation::DeletedWhileHeld(key.clone())) }
        }
        _ => Ok(()),
    }
}

/// Only a version that is up and has passed the gate is routed.
fn only_gated_versions_are_routed(model: &ModelMachine) -> Result<(), Violation> {
    match (model.routed(), model.state()) {
        (None, _) | (Some(_), State::Serving { .. }) => Ok(()),
        _ => Err(Violation::RoutedTooEarly(model.key().clone())),
    }
}

/// A version with a live route is in the configuration wanted for the engine.
fn live_routes_stay_configured(
    wants: impl Fn(&ServableId) -> bool,
    model: &ModelMachine,
) -> Result<(), Violation> {
    let (Some(_), Some(id)) = (model.leased(), model.state().servable()) else {
        return Ok(());
    };
    if wants(id) { Ok(()) } else { Err(Violation::RemovedInUse(id.clone())) }
}

/// Files of every version that may be in the engine's configuration are in use.
fn configured_files_stay<'a>(
    machines: &Machines,
    mut mentioned: impl Iterator<Item = &'a ServableId>,
) -> Result<(), Violation> {
    let in_use = |id: &ServableId| {
        let owner = machines.owner(id).and_then(|key| machines.model(key));
        owner.is_some_and(|model| model.state().in_engine())
    };
    match mentioned.find(|id| !in_use(id)) {
        Some(id) => Err(Violation::FilesInEngine(id.clone())),
        None => Ok(()),
    }
}

/// The engine of every version that is in an engine is known.
fn versions_in_an_engine_are_placed(
    machines: &Machines,
    model: &ModelMachine,
) -> Result<(), Violation> {
    match (model.state().in_engine(), machines.engine_of(model.key())) {
        (true, None) => Err(Violation::Unplaced(model.key().clone())),
        _ => Ok(()),
    }
}

/// Where an engine has one version of a model at a time, no version enters it before the others have
/// left. After a change of the setting two may be there, of which one leaves.
fn versions_are_replaced(machines: &Machines) -> Result<(), Violation> {
    let enters = |model: &&ModelMachine| matches!(model.state(), State::Publishing { .. });
    let stays = |model: &&ModelMachine| {
        !matches!(
            model.state(),
            State::Draining { .. } | State::Leaving { .. } | State::Unloading { .. }
        )
    };
    let replaced = machines.models().filter(|model| machines.is_replaced(&model.key().name));
    for model in
        replaced.filter(|model| model.slot().is_open() && model.state().servable().is_some())
    {
        let others = machines.models_of(&model.key().name);
        let mut others = others.filter(|other| other.key() != model.key());
        let is_there = |other: &&ModelMachine| match enters(&model) {
            true => other.state().servable().is_some(),
            false => stays(&model) && other.state().in_engine() && stays(other),
        };
        if let Some(other) = others.find(is_there) {
            return Err(Violation::Together(model.key().clone(), other.key().clone()));
        }
    }
    Ok(())
}

fn servables_belong_to_one_model(machines: &Machines) -> Result<(), Violation> {
    let mut owners = BTreeMap::new();
    for model in machines.models() {
        let Some(id) = model.state().servable() else { continue };
        if owners.insert(id.clone(), model.key()).is_some() {
            return Err(Violation::SharedServable(id.clone()));
        }
    }
    Ok(())
}

fn versions_are_given_out_once<'a>(
    machines: &Machines,
    mut mentioned: impl Iterator<Item = &'a ServableId>,
) -> Result<(), Violation> {
    let last = machines.last_version();
    match mentioned.find(|id| id.version > last) {
        Some(id) => Err(Violation::UnknownVersion(id.clone())),
        None => Ok(()),
    }
}
