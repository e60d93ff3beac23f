//! The state of the machines that the next process takes over, and the numbers of its versions. The
//! numbers keep a slow write of an earlier state from overwriting a later one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use outrigger_core::{Crashes, EngineId, ModelName, machines::Legacy};
use outrigger_store::{Desired, Promoted, Record};

/// The latest state, by model. Each write of the journal takes the latest state, so that writes that
/// queue up become one.
#[derive(Debug, Default)]
pub(crate) struct Durable(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    number: u64,
    models: BTreeMap<ModelName, Legacy>,
    crashes: BTreeMap<EngineId, Crashes>,
}

impl Durable {
    /// Replaces the state of some models, and the suspicion against versions if there is another one.
    /// Returns the number of the new state; `None` if nothing has changed.
    pub(crate) fn update(
        &self,
        changed: Vec<(ModelName, Legacy)>,
        crashes: Option<BTreeMap<EngineId, Crashes>>,
    ) -> Option<u64> {
        let mut state = self.state();
        let crashes = crashes.filter(|crashes| *crashes != state.crashes);
        if changed.is_empty() && crashes.is_none() {
            return None;
        }
        state.number += 1;
        crashes.into_iter().for_each(|crashes| state.crashes = crashes);
        for (name, legacy) in changed {
            match legacy == Legacy::default() {
                true => state.models.remove(&name),
                false => state.models.insert(name, legacy),
            };
        }
        Some(state.number)
    }

    /// The number of the latest state.
    pub(crate) fn number(&self) -> u64 {
        self.state().number
    }

    /// The number of the latest state, and the state as the store's record and the suspicion.
    pub(crate) fn record(&self) -> (u64, Record, BTreeMap<EngineId, Crashes>) {
        let state = self.state();
        let mut record = Record::default();
        state.models.values().for_each(|legacy| add(&mut record, legacy));
        (state.number, record, state.crashes.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(record: &mut Record, legacy: &Legacy) {
    for (key, digest) in &legacy.tags {
        let tags = record.tags.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), *digest);
    }
    for (key, digest) in &legacy.rejected {
        let tags = record.rejected.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), *digest);
    }
    for (key, (named, promoted)) in &legacy.promoted {
        let tags = record.promoted.entry(key.name.clone()).or_default();
        tags.insert(key.tag.clone(), Promoted { named: *named, promoted: *promoted });
    }
    record.desired.extend(legacy.loaded.iter().map(|(key, loaded)| Desired {
        key: key.clone(),
        servable: loaded.id.clone(),
        engine: loaded.engine.clone(),
    }));
}
