//! Directories of numbered versions, as TensorFlow Serving's `base_path`.

mod poll;
#[cfg(test)]
mod tests;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{Digest, Failure, ModelName, Reason, Tag};
use outrigger_oci::Artifact;
use outrigger_store::{Directory, Tree};
use outrigger_trials::{MayPush, Pair};
use tokio::sync::watch;

pub(crate) use self::watches::Watches;

use self::poll::Polls;
use super::{Fetch, Source};
use crate::{
    config::VersionDirectory,
    world::{blocking, store_failure},
};

/// The settings of a version's trial as a canary, as the label of an image states them: a directory
/// has no tag that a promotion could move.
const CANARY: &str = r#"{"mode": "MODE_LOCAL"}"#;

/// The versions in a directory, as the polls find them.
#[derive(Debug)]
pub(crate) struct Versions {
    pub(crate) directory: VersionDirectory,
    /// Shared with the versions under another policy of the same directory.
    polls: Arc<Mutex<Polls>>,
    /// The state of the directory; `None` until two polls have looked at it.
    state: watch::Sender<Option<Arc<Listing>>>,
}

/// The state of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Listing {
    /// The versions that the policy selects, by number. If the directory cannot be read, or holds
    /// no version to be selected, those that were selected before.
    selected: BTreeMap<u64, Version>,
    /// The reason why they are no longer those of the directory.
    failure: Option<Failure>,
}

/// A version that the policy selects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    /// The name of its directory.
    name: String,
    /// The digest of its content, or the reason why it is refused.
    content: Result<Digest, Failure>,
}

impl Versions {
    pub(crate) fn new(directory: VersionDirectory) -> Self {
        Self { directory, polls: Arc::default(), state: watch::Sender::new(None) }
    }

    /// The versions in `directory`; if it has the same path, what polls have found is kept.
    pub(crate) fn with(self: &Arc<Self>, directory: VersionDirectory) -> Arc<Self> {
        if self.directory == directory {
            return Arc::clone(self);
        }
        let same = self.directory.path == directory.path;
        let polls = if same { Arc::clone(&self.polls) } else { Arc::default() };
        Arc::new(Self { polls, ..Self::new(directory) })
    }

    /// Polls the directory once. Returns its state if that has changed. Blocks.
    fn poll(&self, directory: &Directory) -> Option<Listing> {
        let last = self.state.borrow().clone();
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        polls.poll(directory, &self.directory.policy, last.as_deref())
    }

    /// The tag of the version with the highest number.
    pub(crate) fn latest() -> Tag {
        "latest".parse().expect("a valid tag")
    }

    /// All tags: `latest`, the numbers of the selected versions, and the labels of these. `None` if
    /// they are not known now.
    pub(crate) fn tags(&self) -> Option<BTreeSet<Tag>> {
        let listing = self.state.borrow().clone()?;
        if listing.failure.is_some() {
            return None;
        }
        let numbers = listing.selected.keys().map(|number| tag_of(*number));
        let labels = self.directory.labels.iter();
        let labels = labels.filter(|(_, number)| listing.selected.contains_key(number));
        let labels = labels.map(|(label, _)| label.clone());
        Some(numbers.chain(labels).chain([Self::latest()]).collect())
    }

    /// The state of the directory, as soon as it is known.
    async fn listing(&self) -> Arc<Listing> {
        let mut state = self.state.subscribe();
        let known = state.wait_for(Option::is_some).await.map(|it| it.clone());
        // The sender is part of `self`.
        known.ok().flatten().unwrap_or_default()
    }

    fn find(&self, listing: &Listing, tag: &Tag) -> Result<Digest, Failure> {
        if let Some(failure) = &listing.failure {
            return Err(failure.clone());
        }
        let number = self.directory.labels.get(tag).copied().or_else(|| number_of(tag));
        let version = match number {
            Some(number) => listing.selected.get(&number),
            None if *tag == Self::latest() => {
                let mut highest = listing.selected.values().rev();
                let first = highest.clone().next();
                highest.find(|version| version.content.is_ok()).or(first)
            }
            None => None,
        };
        let none = || {
            let message = format!("the directory has no version {tag}, or it is not selected");
            Failure::new(Reason::TagNotFound, message)
        };
        version.map_or_else(|| Err(none()), |version| version.content.clone())
    }
}

fn tag_of(number: u64) -> Tag {
    number.to_string().parse().expect("digits are a valid tag")
}

/// The number that a tag names: digits without leading zeros.
fn number_of(tag: &Tag) -> Option<u64> {
    tag.as_str().parse().ok().filter(|number| tag_of(*number) == *tag)
}

/// The directory of one model's versions.
pub(super) struct Numbered {
    pub(super) model: ModelName,
    pub(super) versions: Arc<Versions>,
}

impl Numbered {
    async fn look_up(&self, tag: &Tag) -> Result<Digest, Failure> {
        let listing = self.versions.listing().await;
        let found = self.versions.find(&listing, tag);
        found.map_err(|failure| failure.map_message(|why| format!("model {}: {why}", self.model)))
    }

    async fn copy(&self, digest: Digest, fetch: Fetch<'_>) -> Result<Tree, Failure> {
        let listing = self.versions.listing().await;
        let mut versions = listing.selected.values();
        let Some(version) = versions.find(|version| version.content == Ok(digest)) else {
            let message = format!("model {}: no version has the content {digest}", self.model);
            return Err(Failure::new(Reason::DigestNotFound, message));
        };
        let (name, path) = (version.name.clone(), self.versions.directory.path.clone());
        let labels = [(outrigger_canary::LABEL.to_owned(), CANARY.to_owned())].into();
        blocking(fetch.world, move |world| {
            let files = world.store.directory(&path).files(&name);
            let in_use = |digest: &Digest| world.uses(digest);
            let taken = files.and_then(|files| world.store.take(&files, digest, labels, &in_use));
            taken.map_err(|error| store_failure(&error))
        })
        .await
    }
}

impl Source for Numbered {
    fn resolve<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<Digest, Failure>> {
        self.look_up(tag).boxed()
    }

    fn is_missing<'a>(&'a self, tag: &'a Tag) -> BoxFuture<'a, Result<bool, Failure>> {
        let is_missing = |found: Result<Digest, Failure>| match found {
            Ok(_) => Ok(false),
            Err(failure) if failure.reason == Reason::TagNotFound => Ok(true),
            Err(failure) => Err(failure),
        };
        async move { is_missing(self.look_up(tag).await) }.boxed()
    }

    fn fetch<'a>(
        &'a self,
        digest: Digest,
        fetch: Fetch<'a>,
    ) -> BoxFuture<'a, Result<Tree, Failure>> {
        self.copy(digest, fetch).boxed()
    }

    /// Fails: the configuration says which version a label names.
    fn move_tag<'a>(
        &'a self,
        tag: &'a Tag,
        _pair: Pair,
        _may_push: &'a MayPush<'a>,
    ) -> BoxFuture<'a, Result<Digest, Failure>> {
        let message = format!(
            "model {}: the tag {tag} of a directory is not moved; models[].labels names its version",
            self.model
        );
        async { Err(Failure::new(Reason::RegistryDenied, message)) }.boxed()
    }

    /// Does nothing: a directory has no place for documents.
    fn attach<'a>(
        &'a self,
        _digest: Digest,
        _artifact: &'a Artifact,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        async { Ok(()) }.boxed()
    }

    fn attached<'a>(
        &'a self,
        _digest: Digest,
        _artifact_type: &'a str,
        _limit: u64,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, Failure>> {
        async { Ok(Vec::new()) }.boxed()
    }
}
