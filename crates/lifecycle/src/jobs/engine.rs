//! Calls to the engine about what it serves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use outrigger_backend::{ReloadError, ServedModel, ServingConfig, State, VersionStatus};
use outrigger_core::{
    Failure, ModelName, ServableName,
    fleet::Legacy,
    serving::{EngineState, PushOutcome, Seen, ServingSet},
};

use crate::{
    metrics,
    world::{World, blocking},
};

/// Status calls under way at a time.
const CONCURRENCY: usize = 16;

/// Sends the whole configuration, once the journal tells of everything in it.
pub(crate) async fn push(
    world: &Arc<World>,
    set: ServingSet,
    journal: (u64, Arc<Legacy>),
) -> PushOutcome {
    let (number, legacy) = journal;
    blocking(world, move |world| world.write_journal(number, &legacy)).await;
    let served = |(name, versions)| {
        let base_path = world.store.base_path(&name);
        (name, ServedModel { base_path, versions })
    };
    let config = ServingConfig { models: set.into_iter().map(served).collect() };
    let result = world.backend.reload(config).await;
    metrics::reloaded(&result);
    match result {
        Ok(()) => PushOutcome::Taken(None),
        Err(error) => {
            tracing::warn!(error = %error, "the engine did not confirm the configuration");
            let failure = Failure::because(error.reason(), &error);
            match error {
                ReloadError::Timeout => PushOutcome::TimedOut,
                ReloadError::Unavailable(_) => PushOutcome::Lost(failure),
                error if error.was_applied() => PushOutcome::Taken(Some(failure)),
                ReloadError::Refused { .. } => PushOutcome::Refused(failure),
            }
        }
    }
}

/// What the engine says of `names`; of a name of no model when there is none, to
/// see whether it answers.
pub(crate) async fn probe(
    world: &Arc<World>,
    names: BTreeSet<ServableName>,
) -> Result<BTreeMap<ServableName, Vec<Seen>>, Failure> {
    let names = if names.is_empty() { BTreeSet::from([nobody()]) } else { names };
    let status = |name: ServableName| async move {
        let seen = world.backend.status(&name).await;
        let seen = seen.map_err(|error| Failure::because(error.reason(), &error))?;
        Ok((name, seen.into_iter().map(seen_as).collect()))
    };
    stream::iter(names).map(status).buffer_unordered(CONCURRENCY).try_collect().await
}

fn nobody() -> ServableName {
    let name: ModelName = "outrigger.probe".parse().expect("a valid name");
    ServableName::of(&name)
}

fn seen_as(status: VersionStatus) -> Seen {
    let state = match status.state {
        State::Unknown => EngineState::Unknown,
        State::Start => EngineState::Start,
        State::Loading => EngineState::Loading,
        State::Available => EngineState::Available,
        State::Unloading => EngineState::Unloading,
        State::End => EngineState::End,
    };
    Seen { version: status.version, state, failure: status.error.map(|error| error.failure()) }
}
