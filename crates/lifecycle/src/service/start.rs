//! The start: takes over state from an earlier process.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use outrigger_core::{
    Crashes, EngineId, Failure, ModelKey, ModelName, Moment, ServableName, Tag, Version, Versions,
    machines::{Legacy, Loaded, Machines, TagKey},
};
use outrigger_run::{Adopted, Engine};
use outrigger_store::{Desired, Tree};
use outrigger_trials::CanaryRecord;
use tokio::task::spawn_blocking;

use super::Service;
use crate::{Error, jobs::Kept, world::World};

impl Service {
    /// Builds the machines from configuration and journal.
    ///
    /// Versions that were in the engine according to the journal keep their state: a still running
    /// engine goes on serving them, and they only pass the gate again; a restarted engine loads
    /// them under the same names.
    pub(super) async fn take_over(&mut self) -> Result<(), Error> {
        let world = Arc::clone(&self.world);
        let inherited = spawn_blocking(move || inherit(&world)).await;
        let Inherited { legacy, canaries, crashes, kept, last } =
            inherited.unwrap_or_else(|error| {
                std::panic::resume_unwind(error.into_panic());
            })?;
        self.versions.kept = kept;
        self.trials.restore(canaries);
        let (policy, now) = (self.machines.policy().clone(), self.clock.now());
        self.machines = build(&self.world, policy, (legacy, crashes), last, now);
        Ok(())
    }
}

fn build(
    world: &World,
    policy: outrigger_core::Policy,
    (legacy, crashes): (Legacy, BTreeMap<EngineId, Crashes>),
    last: Version,
    now: Moment,
) -> Machines {
    let engines = world.engines.iter().map(|(id, _)| id.clone());
    let mut machines = Machines::new(policy, Versions::after(last), engines);
    tracing::info!(
        tags = legacy.tags.len(),
        versions = legacy.loaded.len(),
        "taking over the state in the journal"
    );
    machines.adopt_crashes(crashes, since_1970().saturating_sub(now.elapsed()));
    machines.adopt(legacy, now);
    machines
}

/// The valid contents of journal and store.
struct Inherited {
    legacy: Legacy,
    canaries: CanaryRecord,
    crashes: BTreeMap<EngineId, Crashes>,
    kept: BTreeMap<ModelKey, Kept>,
    /// A version number above every number ever used.
    last: Version,
}

/// Reads journal and store. Blocks.
fn inherit(world: &World) -> Result<Inherited, Error> {
    let journal = world.store.journal();
    let record = world.store.record().map_err(Error::Journal)?;
    let canaries = journal.load_canaries().map_err(Error::Journal)?;
    let crashes = resumed(journal.load_crashes().map_err(Error::Journal)?);
    let last = journal.next_version().map_err(Error::Journal)?;
    let (mut legacy, mut kept) = (Legacy::default(), BTreeMap::new());
    let names = world.names.load();
    for (name, tags) in record.tags {
        // A name that the configuration no longer allows must not be served.
        if names.location(&name).is_ok() {
            let key = |tag| TagKey { name: name.clone(), tag };
            legacy.tags.extend(tags.into_iter().map(|(tag, digest)| (key(tag), digest)));
        }
    }
    legacy.rejected.extend(each_tag(record.rejected));
    let promoted = each_tag(record.promoted).map(|(key, it)| (key, (it.named, it.promoted)));
    legacy.promoted.extend(promoted);
    let mut candidates = BTreeMap::<EngineId, Vec<(Desired, Tree)>>::new();
    for desired in record.desired {
        // A version whose model names another engine now is loaded there, and not adopted here.
        let named = names.engine(&desired.key.name);
        let usable = names.location(&desired.key.name).is_ok()
            && named.is_none_or(|named| *named == desired.engine)
            && world.is_verified(&desired.key)
            // A suspected version is loaded by itself, if at all.
            && !crashes.values().any(|it| it.is_suspect(&desired.key) || it.failure(&desired.key).is_some())
            && desired.servable.name == ServableName::of(&desired.key.name);
        if usable && let Some(tree) = world.store.tree(&desired.key.digest) {
            candidates.entry(desired.engine.clone()).or_default().push((desired, tree));
        }
    }
    for (id, engine) in world.engines.iter() {
        let candidates = candidates.remove(id).unwrap_or_default();
        for (desired, tree) in adopted(&**engine, candidates).map_err(Error::Engine)? {
            kept.insert(desired.key.clone(), Kept::of(&tree));
            let loaded = Loaded { engine: id.clone(), id: desired.servable };
            legacy.loaded.insert(desired.key, loaded);
        }
    }
    Ok(Inherited { legacy, canaries, crashes, kept, last })
}

/// Takes up the suspicion against versions. Versions that were being loaded when an earlier process
/// ended in disorder may have ended it, with the engine.
fn resumed(mut crashes: BTreeMap<EngineId, Crashes>) -> BTreeMap<EngineId, Crashes> {
    for (engine, crashes) in &mut crashes {
        if let Some(key) = crashes.resume(since_1970()).convicted {
            tracing::warn!(
                %engine, model.name = %key.name, model.digest = %key.digest,
                "the processes ended again while they loaded a version: it is in quarantine"
            );
        }
    }
    crashes
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The candidates that the engine takes over.
fn adopted(
    engine: &dyn Engine,
    candidates: Vec<(Desired, Tree)>,
) -> Result<Vec<(Desired, Tree)>, Failure> {
    let loaded = candidates.iter().map(|(Desired { servable, key, .. }, tree)| Adopted {
        id: servable.clone(),
        digest: key.digest,
        model: tree.model_dir(),
    });
    let taken = engine.adopt(loaded.collect())?;
    Ok(candidates.into_iter().filter(|(it, _)| taken.contains(&it.servable)).collect())
}

/// Flattens the values of tags, with their keys.
fn each_tag<T>(models: BTreeMap<ModelName, BTreeMap<Tag, T>>) -> impl Iterator<Item = (TagKey, T)> {
    models.into_iter().flat_map(|(name, tags)| {
        tags.into_iter().map(move |(tag, value)| (TagKey { name: name.clone(), tag }, value))
    })
}
