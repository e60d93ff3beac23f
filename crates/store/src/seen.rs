//! The models and tags that a tree was seen under, in a file beside its `data/`.
//!
//! A tree belongs to a digest, which several models and tags may share, and never changes; this
//! file does. The engine never sees it, since only the model's directory is published. If no copy
//! of the journal is good, the tags are read from these files.

mod models;

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_core::Digest;
use serde::{Deserialize, Serialize};

pub(crate) use self::models::Seen;
use self::models::{Models, Tags, latest, merged, news};
use crate::{
    Record, Result, Store, disk,
    journal::seal::{seal, unseal},
    metrics,
    store::Layout,
    tree,
};

/// The name of the file, beside the sidecar.
const SEEN: &str = "seen.json";
/// The size limit of the file; the limit of its names keeps it smaller.
const MAX_SIZE: u64 = 4 << 20;
/// The content of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    models: Models,
}

impl Store {
    /// The record in the journal. If neither copy is good, its tags are those that the trees were
    /// seen under, and the rest is empty.
    ///
    /// # Errors
    /// The file system fails.
    pub fn record(&self) -> Result<Record> {
        if let Some(record) = self.journal().load()? {
            return Ok(record);
        }
        let tags = tags(&self.inner.layout)?;
        if !tags.is_empty() {
            metrics::journal_damaged("record", metrics::Used::Trees);
            let models = tags.len();
            tracing::warn!(models, "there is no good journal; the tags are read from the trees");
        }
        Ok(Record { tags, ..Record::default() })
    }

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

/// The tags of all models by the trees' files: each names the tree that it began to name last.
fn tags(layout: &Layout) -> Result<Tags> {
    let mut tags = Tags::new();
    for ((name, tag), (_, digest)) in latest(&read_all(layout)?) {
        tags.entry(name.clone()).or_default().insert(tag.clone(), digest);
    }
    Ok(tags)
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
