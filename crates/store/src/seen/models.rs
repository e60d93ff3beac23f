//! The models and tags of all trees.

use std::collections::BTreeMap;

use outrigger_core::{Digest, ModelName, Tag};

use crate::record::Record;

/// The tags that are kept of each model: the latest.
pub(super) const MAX_TAGS: usize = 256;

/// For each model, the time in milliseconds since 1970 at which each tag began to name the tree.
pub(super) type Models = BTreeMap<ModelName, BTreeMap<Tag, u64>>;

/// The tags of models.
pub(super) type Tags = BTreeMap<ModelName, BTreeMap<Tag, Digest>>;

/// The content of the files of all trees.
#[derive(Debug, Default)]
pub(crate) struct Seen(pub(super) Option<BTreeMap<Digest, Models>>);

impl Seen {
    /// Forgets what was recorded beside an earlier tree of `digest`: a new one has no names yet.
    pub(crate) fn forget(&mut self, digest: &Digest) {
        self.0.as_mut().map(|all| all.remove(digest));
    }
}

/// The parts of `record` that are not in the files.
pub(super) fn news(
    all: &BTreeMap<Digest, Models>,
    record: &Record,
    now: u64,
) -> BTreeMap<Digest, Models> {
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
pub(super) fn latest(
    all: &BTreeMap<Digest, Models>,
) -> BTreeMap<(&ModelName, &Tag), (u64, Digest)> {
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

pub(super) fn merged(mut models: Models, news: Models) -> Models {
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
