//! Models as the page lists them.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use outrigger_core::{Digest, ModelName, Selector, Stage, Tag};
use outrigger_lifecycle::{FailureView, Handle, ModelView, Snapshot, VersionView};
use serde::Serialize;

use super::{overview::milliseconds, topic::Topic};

const NAME: &str = "models";

/// What is told of models.
#[derive(Default)]
pub(super) struct Listed {
    seen: BTreeMap<ModelName, (Arc<ModelView>, Row)>,
    topic: Topic,
}

/// A model in a line: the version that a request without one means, and what
/// stands in the way of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    name: String,
    image: String,
    /// What the row is about: what is answered, or what should be.
    digest: Option<String>,
    state: &'static str,
    activity: &'static str,
    /// When it got into this state, milliseconds since 1970.
    since: Option<u64>,
    /// Of all versions on disk.
    size_bytes: u64,
    versions: usize,
    tags: Vec<TagCell>,
    failure: Option<FailureCell>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TagCell {
    name: String,
    digest: Option<String>,
    /// The registry has something else.
    behind: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct FailureCell {
    reason: &'static str,
    message: String,
    permanent: bool,
}

/// What has changed.
#[derive(Serialize)]
struct Step<'a> {
    models: Vec<&'a Row>,
    gone: Vec<&'a ModelName>,
}

#[derive(Serialize)]
struct Whole<'a> {
    models: Vec<&'a Row>,
}

impl Listed {
    /// What is to be told of models now. The work is that of the models that
    /// changed, until one looks different.
    pub(super) fn topic(&mut self, models: &Handle, snapshot: &Snapshot) -> Topic {
        let mut now = BTreeMap::new();
        for (name, view) in &snapshot.models {
            let row = match self.seen.get(name) {
                Some((seen, row)) if Arc::ptr_eq(seen, view) => row.clone(),
                _ => row(name, view, &models.default_selector(name)),
            };
            now.insert(name.clone(), (Arc::clone(view), row));
        }
        let before = |name| self.seen.get(name).map(|(_, row)| row);
        let changed = now.iter().filter(|(name, (_, row))| before(*name) != Some(row));
        let models: Vec<_> = changed.map(|(_, (_, row))| row).collect();
        let gone: Vec<_> = self.seen.keys().filter(|name| !now.contains_key(*name)).collect();
        let first = self.topic.is_new();
        if first || !models.is_empty() || !gone.is_empty() {
            let whole = Whole { models: now.values().map(|(_, row)| row).collect() };
            let step = Step { models, gone };
            self.topic = self.topic.next(NAME, &whole, (!first).then_some(&step));
        }
        self.seen = now;
        self.topic.clone()
    }
}

fn row(name: &ModelName, view: &ModelView, selector: &Selector) -> Row {
    let version = headline(view, selector);
    Row {
        name: name.to_string(),
        image: view.image.clone(),
        digest: version.map(|version| version.digest.to_string()),
        state: version.map_or(Stage::New, |version| version.stage).as_str(),
        activity: version.map_or("", |version| version.activity),
        since: version.and_then(since).map(milliseconds),
        size_bytes: view.versions.values().map(|version| version.size_bytes).sum(),
        versions: view.versions.len(),
        tags: view.tags.iter().map(|(name, tag)| cell(name, tag.serving, tag.registry)).collect(),
        failure: failure(view, version, selector).map(told),
    }
}

/// The version that answers, else the one that should, else the latest.
fn headline<'a>(view: &'a ModelView, selector: &Selector) -> Option<&'a VersionView> {
    let meant = match selector {
        Selector::Digest(digest) => Some(*digest),
        Selector::Tag(tag) => view.tags.get(tag).and_then(|tag| tag.serving.or(tag.registry)),
    };
    let named = meant.and_then(|digest| view.versions.get(&digest));
    named.or_else(|| view.versions.values().max_by_key(|version| (version.stage, since(version))))
}

fn since(version: &VersionView) -> Option<SystemTime> {
    version.history.last().map(|transition| transition.at)
}

/// What went wrong with the version, else with the look-up of its tag, else with
/// another version.
fn failure<'a>(
    view: &'a ModelView,
    version: Option<&'a VersionView>,
    selector: &Selector,
) -> Option<&'a FailureView> {
    let tag = match selector {
        Selector::Tag(tag) => view.tags.get(tag),
        Selector::Digest(_) => None,
    };
    let own = version.and_then(|version| version.failure.as_ref());
    let looked_up = || tag.and_then(|tag| tag.failure.as_ref());
    let others = || view.versions.values().find_map(|version| version.failure.as_ref());
    own.or_else(looked_up).or_else(others)
}

fn told(view: &FailureView) -> FailureCell {
    FailureCell {
        reason: view.failure.reason.as_str(),
        message: view.failure.message.clone(),
        permanent: view.permanent,
    }
}

fn cell(name: &Tag, serving: Option<Digest>, registry: Option<Digest>) -> TagCell {
    TagCell {
        name: name.to_string(),
        digest: serving.map(|digest| digest.to_string()),
        behind: registry.is_some() && registry != serving,
    }
}

/// The first digits, for people.
pub(super) fn short_digest(digest: &Digest) -> String {
    digest.hex()[..12].to_owned()
}
