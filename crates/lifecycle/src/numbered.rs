//! Versions in directories with numbers, as TensorFlow Serving's `base_path`.

mod poll;
#[cfg(test)]
mod tests;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use outrigger_core::{
    Digest, Failure, Reason, Tag,
    machines::{Latest, Listed},
};
use outrigger_store::Directory;
use tokio::sync::watch;

pub(crate) use self::watches::Watches;

use self::poll::{Looking, Polls, Turn};
use crate::config::VersionDirectory;

/// The versions in a directory, as the polls find them.
#[derive(Debug)]
pub(crate) struct Versions {
    pub(crate) directory: VersionDirectory,
    /// Shared with the versions under another policy of the same directory, as is `failing`.
    polls: Arc<Mutex<Polls>>,
    /// Versions that cannot be served: others are selected beside them.
    failing: Arc<watch::Sender<BTreeSet<Digest>>>,
    /// The state of the directory; `None` until two polls have looked at it.
    state: watch::Sender<Option<Arc<Listing>>>,
}

/// The state of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The versions that the policy selects, by number. If the directory cannot be read, or holds
    /// no version to be selected, those that were selected before.
    pub(crate) selected: BTreeMap<u64, Version>,
    /// There are further versions, which are selected when too many of these cannot be served.
    has_more: bool,
    /// The reason why they are no longer those of the directory.
    failure: Option<Failure>,
}

/// A version that the policy selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// The name of its directory.
    pub(crate) name: String,
    /// The digest of its content, or the reason why it is refused.
    pub(crate) content: Result<Digest, Failure>,
}

impl Versions {
    pub(crate) fn new(directory: VersionDirectory) -> Self {
        Self {
            directory,
            polls: Arc::default(),
            failing: Arc::default(),
            state: watch::Sender::new(None),
        }
    }

    /// The versions in `directory`; if it has the same path, what polls have found is kept.
    pub(crate) fn with(self: &Arc<Self>, directory: VersionDirectory) -> Arc<Self> {
        if self.directory == directory {
            return Arc::clone(self);
        }
        let mut versions = Self::new(directory);
        if self.directory.path == versions.directory.path {
            versions.polls = Arc::clone(&self.polls);
            versions.failing = Arc::clone(&self.failing);
        }
        Arc::new(versions)
    }

    /// Sets the versions that cannot be served. The directory is then polled at once.
    pub(crate) fn set_failing(&self, failing: BTreeSet<Digest>) {
        self.failing.send_if_modified(|known| {
            let is_changed = *known != failing;
            *known = failing;
            is_changed
        });
    }

    /// Polls the directory once. Returns its state if that has changed. Blocks.
    fn poll(&self, directory: &Directory, turn: Turn) -> Option<Listing> {
        let last = self.state.borrow().clone();
        let failing = self.failing.borrow().clone();
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        let look = Looking { directory, turn, policy: &self.directory.policy, failing: &failing };
        polls.poll(&look, last.as_deref())
    }

    /// The tag of the version with the highest number.
    pub(crate) fn latest() -> Tag {
        "latest".parse().expect("a valid tag")
    }

    /// All tags: `latest`, the numbers of the selected versions, and the labels of these. `None` if
    /// they are not known now.
    pub(crate) fn listed(&self) -> Option<Listed> {
        let listing = self.state.borrow().clone()?;
        if listing.failure.is_some() {
            return None;
        }
        let numbers = listing.selected.keys().map(|number| tag_of(*number));
        let labels = self.directory.labels.iter();
        let labels = labels.filter(|(_, number)| listing.selected.contains_key(number));
        let labels = labels.map(|(label, _)| label.clone());
        let tags = numbers.chain(labels).chain([Self::latest()]).collect();
        let complete = listing.selected.iter().rev().filter(|(_, it)| it.content.is_ok());
        let latest = Latest {
            tag: Self::latest(),
            versions: complete.map(|(number, _)| tag_of(*number)).collect(),
            has_more: listing.has_more,
        };
        Some(Listed { tags, latest: Some(latest) })
    }

    /// The state of the directory, as soon as it is known.
    pub(crate) async fn listing(&self) -> Arc<Listing> {
        let mut state = self.state.subscribe();
        let known = state.wait_for(Option::is_some).await.map(|it| it.clone());
        // The sender is part of `self`.
        known.ok().flatten().unwrap_or_default()
    }

    /// The digest of the version with a tag, as soon as the state of the directory is known.
    ///
    /// # Errors
    /// TAG_NOT_FOUND, or the reason why the directory or the version is refused.
    pub(crate) async fn look_up(&self, tag: &Tag) -> Result<Digest, Failure> {
        self.find(&*self.listing().await, tag)
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
