//! The job that passes a version through the gate.

use std::sync::Arc;

use outrigger_core::{Attempt, Failure, ModelKey, Reason, ServableId, model::Fault};
use outrigger_features::Arrived;
use outrigger_score::Scorer;

use super::{Done, Prepared, prepare::prepare};
use crate::{Gate, metrics, world::World};

/// A version in the engine.
pub(crate) struct Neighbour {
    pub(crate) key: ModelKey,
    pub(crate) id: ServableId,
    pub(crate) prepared: Arc<Prepared>,
    /// It has passed the gate itself.
    pub(crate) passed: bool,
}

/// Passes the version that the engine serves as `id` through the gate, and warms it up with recent
/// requests of its model. `beside` are those whose answers its load may have changed.
pub(crate) async fn check(
    world: Arc<World>,
    key: ModelKey,
    attempt: Attempt,
    id: ServableId,
    known: Option<Arc<Prepared>>,
    recent: Vec<Arrived>,
    beside: Vec<Neighbour>,
) -> Done {
    let fresh = known.is_none();
    let prepared = match known {
        Some(prepared) => Ok(prepared),
        None => prepare(&world, &key).await,
    };
    let (prepared, result) = match prepared {
        Ok(prepared) => {
            let scorer = &prepared.unhindered(id);
            let gate = gate(&world, &prepared, scorer);
            let result = match gate.pass(&prepared.golden).await {
                Ok(()) => Ok(gate.replay(&recent).await),
                Err(failure) => Err(failure),
            };
            (fresh.then_some(prepared), result)
        }
        Err(Fault::Failed(failure)) => (None, Err(failure)),
        Err(Fault::FilesMissing) => {
            (None, Err(Failure::new(Reason::Internal, "its files are gone from the store")))
        }
    };
    let passed: Vec<_> = beside.iter().filter(|it| it.passed).map(|it| it.key.clone()).collect();
    let harmed = harmed(&world, beside).await;
    // The wrong scores of a version whose own check is still under way may be its own. It is loaded
    // again as well, and its next check decides.
    let changed = harmed.iter().find(|(other, _)| passed.contains(other));
    let result = result.and_then(|replayed| match changed {
        None => Ok(replayed),
        Some((other, failure)) => {
            let message = format!("its load changed the answers of {other}: {}", failure.message);
            Err(Failure::new(Reason::GoldenMismatch, message))
        }
    });
    metrics::gated(&result);
    Done::Checked { key, attempt, prepared, result, harmed }
}

/// The versions whose golden cases have other scores now, with a failure that has them loaded again.
async fn harmed(world: &World, beside: Vec<Neighbour>) -> Vec<(ModelKey, Failure)> {
    let mut harmed = Vec::new();
    let tested = beside.into_iter().filter(|it| it.prepared.golden.count() > 0);
    for Neighbour { key, id, prepared, .. } in tested {
        let scorer = &prepared.unhindered(id);
        let passed = gate(world, &prepared, scorer).pass(&prepared.golden).await;
        if let Err(failure) = passed
            && failure.reason == Reason::GoldenMismatch
        {
            let message = format!("after the load of another version: {}", failure.message);
            harmed.push((key, Failure::new(Reason::EngineFailed, message)));
        }
    }
    harmed
}

fn gate<'a>(world: &'a World, prepared: &'a Prepared, scorer: &'a Scorer) -> Gate<'a> {
    let packages = Some(&world.config.budget.packages);
    let timeout = world.config.engine.gate_timeout;
    Gate { engine: &*prepared.engine.1, scorer, timeout, packages }
}
