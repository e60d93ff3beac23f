//! The models and tags that a tree was seen under, in a file beside its `data/`.
//!
//! A tree belongs to a digest, which several models and tags may share, and never changes; this
//! file does. The engine never sees it, since only the model's directory is published. If no copy
//! of the journal is good, the tags are read from these files.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_core::{Digest, ModelName, Tag};
use serde::{Deserialize, Serialize};

use crate::{
    Record, Result, Store, disk,
    journal::seal::{seal, unseal},
    store::Layout,
    tree,
};

/// The name of the file, beside the sidecar.
const SEEN: &str = "seen.json";
/// The size limit of the file; the limit of its names keeps it smaller.
const MAX_SIZE: u64 = 4 << 20;
/// The tags that are kept of each model: the latest.
const MAX_TAGS: usize = 256;

/// For each model, the time in milliseconds since 1970 at which each tag began to name the tree.
type Models = BTreeMap<ModelName, BTreeMap<Tag, u64>>;

/// The tags of models.
type Tags = BTreeMap<ModelName, BTreeMap<Tag, Digest>>;

/// The content of the files of all trees.
#[derive(Debug, Default)]
pub(crate) struct Seen(Option<BTreeMap<Digest, Models>>);

/// The content of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    models: Models,
}

impl Store {
    /// Records beside each tree the models and tags that `record` has it under. Trees that are
    /// missing are skipped. Writes only what has changed.
    ///
    /// # Errors
    /// The file system fails.
    pub fn record_seen(&self, record: &Record) -> Result<()> {
        let mut seen = self.inner.seen();
        let all = match &mut seen.0 {
            Some(all) => all,
            none => none.insert(read_all(&self.inner.layout)?),
        };
        for (digest, models) in news(all, record, now()) {
            // The lock keeps the tree from being evicted meanwhile.
            let _claims = self.inner.claims();
            if self.tree(&digest).is_some() {
                let merged = merged(all.get(&digest).cloned().unwrap_or_default(), models);
                write(&self.inner.layout, &digest, &merged)?;
                all.insert(digest, merged);
            }
        }
        Ok(())
    }
}

impl Seen {
    /// Forgets what was recorded beside an earlier tree of `digest`: a new one has no names yet.
    pub(crate) fn forget(&mut self, digest: &Digest) {
        self.0.as_mut().map(|all| all.remove(digest));
    }
}

/// The tags of all models by the trees' files: each names the tree that it began to name last.
pub(crate) fn tags(layout: &Layout) -> Result<Tags> {
    let mut tags = Tags::new();
    for ((name, tag), (_, digest)) in latest(&read_all(layout)?) {
        tags.entry(name.clone()).or_default().insert(tag.clone(), digest);
    }
    Ok(tags)
}

/// The parts of `record` that are not in the files.
fn news(all: &BTreeMap<Digest, Models>, record: &Record, now: u64) -> BTreeMap<Digest, Models> {
    let latest = latest(all);
    let mut news = BTreeMap::<Digest, Models>::new();
    let each = |(name, tags)| BTreeMap::iter(tags).map(move |(tag, digest)| (name, tag, digest));
    for (name, tag, digest) in record.tags.iter().flat_map(each) {
        if latest.get(&(name, tag)).is_none_or(|(_, known)| known != digest) {
            let tags = news.entry(*digest).or_default().entry(name.clone()).or_default();
            tags.insert(tag.clone(), now);
        }
    }
    for key in record.desired.iter().map(|desired| &desired.key) {
        if all.get(&key.digest).is_none_or(|models| !models.contains_key(&key.name)) {
            news.entry(key.digest).or_default().entry(key.name.clone()).or_default();
        }
    }
    news
}

/// For each tag of each model, the tree that it began to name last, with the time.
fn latest(all: &BTreeMap<Digest, Models>) -> BTreeMap<(&ModelName, &Tag), (u64, Digest)> {
    let mut latest = BTreeMap::new();
    for (digest, models) in all {
        for (name, tags) in models {
            for (tag, time) in tags {
                let entry = latest.entry((name, tag)).or_insert((*time, *digest));
                *entry = (*entry).max((*time, *digest));
            }
        }
    }
    latest
}

fn merged(mut models: Models, news: Models) -> Models {
    for (name, tags) in news {
        let all = models.entry(name).or_default();
        all.extend(tags);
        while all.len() > MAX_TAGS {
            let oldest = all.iter().min_by_key(|(_, time)| **time).map(|(tag, _)| tag.clone());
            oldest.map(|tag| all.remove(&tag));
        }
    }
    models
}

fn read_all(layout: &Layout) -> Result<BTreeMap<Digest, Models>> {
    let trees = tree::all(layout)?;
    Ok(trees.iter().map(|tree| (*tree.digest(), read(layout, tree.digest()))).collect())
}

/// The content of a tree's file; empty if it is missing or damaged.
fn read(layout: &Layout, digest: &Digest) -> Models {
    let file = disk::read(&layout.tree(digest).join(SEEN), MAX_SIZE).ok().flatten();
    let content = file.as_deref().and_then(unseal).map(serde_json::from_slice::<Content>);
    content.and_then(|content| content.ok()).unwrap_or_default().models
}

fn write(layout: &Layout, digest: &Digest, models: &Models) -> Result<()> {
    let content = Content { models: models.clone() };
    let content = serde_json::to_vec_pretty(&content).expect("text and numbers only");
    disk::replace(&layout.tree(digest).join(SEEN), &seal(content))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
