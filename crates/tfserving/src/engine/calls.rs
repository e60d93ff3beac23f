//! The control calls that the engine's machine requests.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use outrigger_core::{Failure, ModelName, ServableName};

use super::Engine;
use crate::{
    ReloadError, ServedModel, ServingConfig, VersionStatus,
    machine::{PushOutcome, Seen, ServingSet},
};

/// Status calls in flight at a time.
const CONCURRENCY: usize = 16;

/// Sends the whole configuration to the engine.
pub(super) async fn push(engine: &Engine, set: ServingSet) -> Result<(), ReloadError> {
    let served = |(name, versions)| {
        let base_path = engine.files.base_path(&name);
        (name, ServedModel { base_path, versions })
    };
    let config = ServingConfig { models: set.into_iter().map(served).collect() };
    engine.client.reload(config).await
}

/// Converts the result of a reload for the machine.
pub(super) fn outcome(result: Result<(), ReloadError>) -> PushOutcome {
    let Err(error) = result else { return PushOutcome::Taken(None) };
    tracing::warn!(error = %error, "the engine did not confirm the configuration");
    let failure = Failure::because(error.reason(), &error);
    match error {
        ReloadError::Timeout => PushOutcome::TimedOut,
        ReloadError::Unavailable(_) => PushOutcome::Lost(failure),
        error if error.was_applied() => PushOutcome::Taken(Some(failure)),
        ReloadError::Refused { .. } => PushOutcome::Refused(failure),
    }
}

/// Asks the engine for the status of `names`. If `names` is empty it asks for a name without a
/// model, to see whether the engine answers.
pub(super) async fn probe(
    engine: &Engine,
    names: BTreeSet<ServableName>,
) -> Result<BTreeMap<ServableName, Vec<Seen>>, Failure> {
    let names = if names.is_empty() { BTreeSet::from([probe_name()]) } else { names };
    let status = |name: ServableName| async move {
        let seen = engine.client.status(&name).await;
        let seen = seen.map_err(|error| Failure::because(error.reason(), &error))?;
        Ok((name, seen.into_iter().map(seen_as).collect()))
    };
    stream::iter(names).map(status).buffer_unordered(CONCURRENCY).try_collect().await
}

fn probe_name() -> ServableName {
    let name: ModelName = "outrigger.probe".parse().expect("a valid name");
    ServableName::of(&name)
}

fn seen_as(status: VersionStatus) -> Seen {
    let failure = status.error.map(|error| error.failure());
    Seen { version: status.version, state: status.state, failure }
}
