//! Calls about the models of versions at one server.

use std::sync::Arc;

use outrigger_core::{Failure, Reason};
use outrigger_oip_client::{self as client, Class};
use tokio::time::Instant;

use crate::Engine;

/// Has models loaded in their order. Returns those that were, and the failure of the next one.
pub(crate) async fn load(
    engine: &Engine,
    server: usize,
    models: &[Arc<str>],
) -> (Vec<Arc<str>>, Result<(), Failure>) {
    let mut loaded = Vec::new();
    for model in models {
        let deadline = Instant::now() + engine.settings.load_timeout;
        if let Err(failure) = engine.client.load(server, model, deadline).await {
            return (loaded, Err(not_loaded(&failure)));
        }
        loaded.push(Arc::clone(model));
    }
    (loaded, Ok(()))
}

/// A failure that may pass: the model may appear on the server.
pub(crate) fn unavailable(failure: &client::Failure) -> Failure {
    Failure::new(Reason::EngineUnavailable, failure.to_string())
}

/// The failure of a load. A server that answers has refused the model itself.
fn not_loaded(failure: &client::Failure) -> Failure {
    let answered = matches!(failure.class, Class::Refused | Class::Ambiguous);
    match answered && !failure.is_not_served() {
        true => Failure::new(Reason::EngineFailed, failure.to_string()),
        false => unavailable(failure),
    }
}

/// Has models unloaded in their order. Returns those that the server may still have, because it did
/// not answer.
pub(crate) async fn unload(engine: &Engine, server: usize, models: &[Arc<str>]) -> Vec<Arc<str>> {
    let deadline = Instant::now() + engine.settings.load_timeout;
    let mut left = Vec::new();
    for model in models {
        let Err(failure) = engine.client.unload(server, model, deadline).await else { continue };
        if failure.is_not_served() {
            continue;
        }
        // The model takes the server's memory, and no request.
        tracing::warn!(%model, %failure, "a model was not unloaded");
        if matches!(failure.class, Class::Unavailable | Class::Lost) {
            left.push(Arc::clone(model));
        }
    }
    left
}
