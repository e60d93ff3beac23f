//! The start: state is taken over from an earlier process.

use std::{collections::BTreeMap, sync::Arc};

use outrigger_core::{
    ModelKey, ModelName, Moment, Selector, ServableId, ServableName, Tag, Version,
    fleet::{Fleet, Legacy, TagKey},
};
use outrigger_store::Published;
use outrigger_trials::CanaryRecord;
use tokio::task::spawn_blocking;

use super::Service;
use crate::{Error, jobs::Kept, world::World};

impl Service {
    /// Builds the machines from configuration and journal.
    ///
    /// Versions that the journal says were in the engine are kept as they were:
    /// an engine that still runs serves them on, and they only pass the gate
    /// again; one that has restarted loads them under the same names.
    pub(super) async fn take_over(&mut self) -> Result<(), Error> {
        let world = Arc::clone(&self.world);
        let inherited = spawn_blocking(move || inherit(&world)).await;
        let Inherited { legacy, canaries, kept, last } = inherited.unwrap_or_else(|error| {
            std::panic::resume_unwind(error.into_panic());
        })?;
        self.inherited = last;
        self.versions.kept = kept;
        self.trials.restore(canaries);
        self.fleet =
            build(&self.world, self.fleet.policy().clone(), legacy, last, self.clock.now());
        Ok(())
    }
}

fn build(
    world: &World,
    policy: outrigger_core::Policy,
    legacy: Legacy,
    last: Version,
    now: Moment,
) -> Fleet {
    let mut fleet = Fleet::new(policy, last, now);
    for (name, selector) in world.names.preloads() {
        match selector {
            Selector::Tag(tag) => fleet.follow(TagKey { name, tag }, now),
            Selector::Digest(digest) => fleet.pin(ModelKey { name, digest }),
        }
    }
    if world.config.canary.enabled {
        let (default_tag, default_tags) = world.names.default_tags();
        fleet.follow_canaries(default_tag, default_tags);
    }
    tracing::info!(
        tags = legacy.tags.len(),
        versions = legacy.loaded.len(),
        "taking over what the journal tells"
    );
    fleet.adopt(legacy, now);
    fleet
}

/// The state in the journal and the store, as far as it still holds.
struct Inherited {
    legacy: Legacy,
    canaries: CanaryRecord,
    kept: BTreeMap<ModelKey, Kept>,
    /// Larger than any version that was ever used.
    last: Version,
}

/// Reads journal and store. Blocks.
fn inherit(world: &World) -> Result<Inherited, Error> {
    let journal = world.store.journal();
    let record = journal.load().map_err(Error::Journal)?;
    let canaries = journal.load_canaries().map_err(Error::Journal)?;
    let published = world.store.published().map_err(Error::Journal)?;
    let last = journal.next_version().map_err(Error::Journal)?;
    let (mut legacy, mut kept) = (Legacy::default(), BTreeMap::new());
    for (name, tags) in record.tags {
        // An image that is not allowed any more must not be served any more.
        if world.names.image(&name).is_ok() {
            let key = |tag| TagKey { name: name.clone(), tag };
            legacy.tags.extend(tags.into_iter().map(|(tag, digest)| (key(tag), digest)));
        }
    }
    legacy.rejected.extend(each_tag(record.rejected));
    let promoted = each_tag(record.promoted).map(|(key, it)| (key, (it.named, it.promoted)));
    legacy.promoted.extend(promoted);
    // All of them: the engine may know names that have no version left.
    let placeholders = placeholders(&published);
    legacy.placeholders.extend(placeholders.values().cloned());
    for desired in record.desired {
        let there = Published { id: desired.servable.clone(), tree: Some(desired.key.digest) };
        let Some(tree) = world.store.tree(&desired.key.digest) else { continue };
        let usable = published.contains(&there)
            && world.names.image(&desired.key.name).is_ok()
            && world.is_verified(&desired.key)
            && desired.servable.name == ServableName::of(&desired.key.name);
        if usable && placeholders.contains_key(&desired.servable.name) {
            kept.insert(desired.key.clone(), Kept::of(&tree));
            legacy.loaded.insert(desired.key, desired.servable);
        }
    }
    Ok(Inherited { legacy, canaries, kept, last })
}

/// The values of tags, by their keys.
fn each_tag<T>(models: BTreeMap<ModelName, BTreeMap<Tag, T>>) -> impl Iterator<Item = (TagKey, T)> {
    models.into_iter().flat_map(|(name, tags)| {
        tags.into_iter().map(move |(tag, value)| (TagKey { name: name.clone(), tag }, value))
    })
}

/// The latest placeholder of each name.
fn placeholders(published: &[Published]) -> BTreeMap<ServableName, ServableId> {
    let placeholders = published.iter().filter(|published| published.tree.is_none());
    // In the order of their versions, so the latest stays.
    placeholders.map(|it| (it.id.name.clone(), it.id.clone())).collect()
}
