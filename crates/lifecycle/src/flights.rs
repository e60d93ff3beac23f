//! The calls of all versions: the versions whose calls an engine's end cut off, the rule for those that
//! may have caused it, and the outages that calls do not outlast.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use outrigger_core::{EngineId, ModelKey, crashes::CutCalls, machines::Suspects};
use outrigger_score::{Flight, Outage, Phase, Turns};
use tokio::time::Instant;

/// The calls of all versions.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    turns: BTreeMap<EngineId, Arc<Turns>>,
    /// The calls of each prepared version.
    versions: BTreeMap<(EngineId, ModelKey), Weak<Flight>>,
    suspects: BTreeMap<EngineId, Suspects>,
}

impl Flights {
    /// The calls of a version in `engine`.
    pub(crate) fn of(&self, engine: &EngineId, key: &ModelKey) -> Arc<Flight> {
        let mut state = self.state();
        let place = (engine.clone(), key.clone());
        if let Some(flight) = state.versions.get(&place).and_then(Weak::upgrade) {
            return flight;
        }
        state.versions.retain(|_, flight| flight.strong_count() > 0);
        let turns = Arc::clone(state.turns.entry(engine.clone()).or_default());
        let flight = Arc::new(Flight::new(turns));
        state.mark(engine, key, &flight);
        state.versions.insert(place, Arc::downgrade(&flight));
        flight
    }

    /// Takes the calls that the end of `engine` may have cut off, as far as they ended after `since`.
    /// The engine has restarted.
    pub(crate) fn take_cut_calls(&self, engine: &EngineId, since: Instant) -> CutCalls {
        let state = self.state();
        state.turns.get(engine).into_iter().for_each(|turns| turns.restarted());
        let mut calls = CutCalls::default();
        for ((_, key), flight) in state.versions.iter().filter(|((at, _), _)| at == engine) {
            let cuts = flight.upgrade().map(|flight| flight.take_cuts()).unwrap_or_default();
            let is_recent = |at: Option<Instant>| at.is_some_and(|at| at >= since);
            calls.lost.extend(is_recent(cuts.lost).then(|| key.clone()));
            calls.abandoned.extend(is_recent(cuts.abandoned).then(|| key.clone()));
        }
        calls
    }

    /// Applies the rules for the suspected versions.
    pub(crate) fn set(&self, suspects: BTreeMap<EngineId, Suspects>) {
        let mut state = self.state();
        if state.suspects == suspects {
            return;
        }
        state.suspects = suspects;
        for ((engine, key), flight) in &state.versions {
            flight.upgrade().into_iter().for_each(|flight| state.mark(engine, key, &flight));
        }
        for (engine, turns) in &state.turns {
            turns.set(state.suspects.get(engine).map(phase).unwrap_or_default());
        }
    }

    /// Records whether `engine` answers.
    pub(crate) fn set_outage(&self, engine: &EngineId, outage: Option<Outage>) {
        self.state().turns.entry(engine.clone()).or_default().set_outage(outage);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn mark(&self, engine: &EngineId, key: &ModelKey, flight: &Flight) {
        let suspects = self.suspects.get(engine);
        flight.suspect(suspects.is_some_and(|suspects| suspects.versions.contains(key)));
    }
}

fn phase(suspects: &Suspects) -> Phase {
    match suspects {
        Suspects { are_loading: true, .. } => Phase::Closed,
        Suspects { are_apart: true, .. } => Phase::Apart,
        _ => Phase::Free,
    }
}
