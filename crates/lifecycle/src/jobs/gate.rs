//! The job that passes a version through the gate.

use std::sync::Arc;

use outrigger_core::{Attempt, Failure, ModelKey, Reason, ServableId, model::Fault};
use outrigger_features::Arrived;

use super::{Done, Prepared, prepare::prepare};
use crate::{Gate, metrics, world::World};

/// Passes the version that the engine serves as `id` through the gate, and warms it up with recent
/// requests of its model.
pub(crate) async fn check(
    world: Arc<World>,
    key: ModelKey,
    attempt: Attempt,
    id: ServableId,
    known: Option<Arc<Prepared>>,
    recent: Vec<Arrived>,
) -> Done {
    let fresh = known.is_none();
    let prepared = match known {
        Some(prepared) => Ok(prepared),
        None => prepare(&world, &key).await,
    };
    let (prepared, result) = match prepared {
        Ok(prepared) => {
            let timeout = world.config.engine.gate_timeout;
            let scorer = &prepared.unhindered(id);
            let packages = Some(&world.config.budget.packages);
            let gate = Gate { engine: &*prepared.engine.1, scorer, timeout, packages };
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
    metrics::gated(&result);
    Done::Checked { key, attempt, prepared, result }
}
