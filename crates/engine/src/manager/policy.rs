//! Chooses the manager's next action; availability comes first.

use std::collections::BTreeMap;

use super::{
    Managed,
    harness::{Harness, Phase},
};
use crate::servable::ServableId;

/// A load or unload of one servable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Load(ServableId),
    Unload(ServableId),
}

/// The next action over all models: an unload before any load, and among equals the
/// highest version.
pub(super) fn next_action<S>(managed: &Managed<S>) -> Option<Action> {
    let mut models: BTreeMap<&str, Vec<(&ServableId, &Harness<S>)>> = BTreeMap::new();
    for (id, harness) in managed {
        models.entry(&id.name).or_default().push((id, harness));
    }
    let actions = models.values().filter_map(|versions| next_of_model(versions));
    // The first of equals wins, so the order of model names decides ties.
    actions.reduce(|best, action| if rank(&action) > rank(&best) { action } else { best })
}

fn rank(action: &Action) -> (bool, i64) {
    match action {
        Action::Unload(id) => (true, id.version),
        Action::Load(id) => (false, id.version),
    }
}

/// The next action for one model, whose versions are in ascending order. Versions that
/// are no longer aspired are unloaded, lowest first, if an aspired version is ready, if
/// no version is aspired, or if more than one of them is left. Otherwise the highest new
/// version is loaded.
fn next_of_model<S>(versions: &[(&ServableId, &Harness<S>)]) -> Option<Action> {
    let ready = |harness: &Harness<S>| harness.phase == Phase::Ready;
    let any_aspired = versions.iter().any(|(_, harness)| harness.aspired);
    let aspired_ready = versions.iter().any(|(_, harness)| harness.aspired && ready(harness));
    let mut leaving = versions.iter().filter(|(_, harness)| !harness.aspired && ready(harness));
    if let Some((id, _)) = leaving.next()
        && (!any_aspired || aspired_ready || leaving.next().is_some())
    {
        return Some(Action::Unload((*id).clone()));
    }
    let mut new =
        versions.iter().rev().filter(|(_, harness)| harness.aspired && harness.phase == Phase::New);
    new.next().map(|(id, _)| Action::Load((*id).clone()))
}
