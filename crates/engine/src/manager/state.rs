//! Externally visible states of versions, and the bus that publishes them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use tokio::sync::watch;

use super::lock;
use crate::{servable::ServableId, status::Status};

/// A version's state, with TensorFlow Serving's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Known; waits to be loaded.
    Start,
    /// Being loaded, or between two attempts.
    Loading,
    /// Available for requests.
    Available,
    /// No longer available; being unloaded.
    Unloading,
    /// Unloaded, or failed to load.
    End,
}

/// A state, with the error that led to it, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionState {
    /// The state.
    pub state: State,
    /// The error that led to [`State::End`].
    pub status: Result<(), Status>,
}

impl VersionState {
    /// A state that was reached without an error.
    pub fn of(state: State) -> Self {
        Self { state, status: Ok(()) }
    }
}

pub(super) type States = BTreeMap<String, BTreeMap<i64, VersionState>>;

/// Publishes every change of state to every monitor.
#[derive(Debug, Default)]
pub struct Bus {
    monitors: Mutex<Vec<Weak<watch::Sender<States>>>>,
}

impl Bus {
    /// A monitor of the changes from now on.
    pub fn monitor(&self) -> Monitor {
        let states = Arc::new(watch::Sender::new(States::new()));
        lock(&self.monitors).push(Arc::downgrade(&states));
        Monitor { states }
    }

    pub(super) fn publish(&self, id: &ServableId, state: &VersionState) {
        lock(&self.monitors).retain(|monitor| {
            let Some(states) = monitor.upgrade() else { return false };
            states.send_modify(|states| {
                states.entry(id.name.clone()).or_default().insert(id.version, state.clone());
            });
            true
        });
    }
}

/// The last state of every version since the monitor was created. Entries are never
/// removed.
#[derive(Debug, Clone)]
pub struct Monitor {
    pub(super) states: Arc<watch::Sender<States>>,
}

impl Monitor {
    /// All versions of a model, highest first; empty if the model is unknown.
    pub fn versions(&self, name: &str) -> Vec<(i64, VersionState)> {
        let states = self.states.borrow();
        let versions = states.get(name).into_iter().flatten();
        versions.rev().map(|(version, state)| (*version, state.clone())).collect()
    }

    /// The state of one version.
    pub fn version(&self, name: &str, version: i64) -> Option<VersionState> {
        self.states.borrow().get(name)?.get(&version).cloned()
    }

    /// Waits until each of the models has a version that is available or has ended, and
    /// returns those that ended. For each model the highest such version counts. The wait
    /// has no time limit.
    pub async fn settled(&self, names: &[String]) -> Vec<(ServableId, Result<(), Status>)> {
        let mut states = self.states.subscribe();
        let states = states
            .wait_for(|states| names.iter().all(|name| settled(states, name).is_some()))
            .await
            .expect("the sender lives as long as this monitor");
        let settled = names.iter().filter_map(|name| settled(&states, name));
        settled
            .filter(|(_, state)| state.state == State::End)
            .map(|(id, state)| (id, state.status.clone()))
            .collect()
    }
}

fn settled<'a>(states: &'a States, name: &str) -> Option<(ServableId, &'a VersionState)> {
    let versions = states.get(name)?.iter().rev();
    let mut settled =
        versions.filter(|(_, state)| matches!(state.state, State::Available | State::End));
    let (&version, state) = settled.next()?;
    Some((ServableId { name: name.to_owned(), version }, state))
}
