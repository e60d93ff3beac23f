//! The polls of a directory: a version is taken once two polls in a row have found the same files.
//!
//! The version after the selected ones is watched too, so that it can be taken at once when one of
//! these turns out not to be servable.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_core::{Digest, Failure, Reason, VersionPolicy};
use outrigger_store::{Directory, Error, Files};

use super::{Listing, Version};
use crate::error::store_failure;

/// The versions of a directory as earlier polls have found them.
#[derive(Debug, Default)]
pub(super) struct Polls {
    sightings: BTreeMap<u64, Sighting>,
    /// The number of polls so far; two at most are counted.
    count: u32,
}

/// A version as earlier polls have found it.
#[derive(Debug, Default)]
struct Sighting {
    /// The state that the last poll found; `None` if it changed since.
    last: Option<Look>,
    /// Two polls in a row have found that state.
    is_steady: bool,
    /// The last state that two polls found: the content, or the reason why it is refused.
    taken: Option<(Look, Version)>,
}

/// The state of a version's files at one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Look {
    /// The fingerprint of its files.
    Files(Digest),
    Refused(Failure),
}

/// The cause of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The interval between polls has passed.
    Due,
    /// Other versions cannot be served than before. So soon after the last poll, the same files are
    /// no sign that a version is complete.
    Early,
}

/// The circumstances of a poll.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looking<'a> {
    pub(super) directory: &'a Directory,
    pub(super) turn: Turn,
    pub(super) policy: &'a VersionPolicy,
    /// Versions that cannot be served.
    pub(super) failing: &'a BTreeSet<Digest>,
}

impl Polls {
    /// Looks at the directory. Returns its state if that is not `last`, the state as it is known;
    /// for the first time after two polls. Blocks.
    pub(super) fn poll(&mut self, by: &Looking<'_>, last: Option<&Listing>) -> Option<Listing> {
        let selected = self.select(by);
        self.count = (self.count + u32::from(by.turn == Turn::Due)).min(2);
        // The earlier selection stays in service.
        let failed =
            |failure| Listing { failure: Some(failure), ..last.cloned().unwrap_or_default() };
        let listing = match selected {
            Ok(listing) if !listing.selected.is_empty() => listing,
            // The next poll can tell.
            Ok(_) if self.is_pending() => return None,
            Ok(_) => failed(none_selected(by.directory)),
            Err(failure) => failed(failure),
        };
        Some(listing).filter(|listing| self.count >= 2 && last != Some(listing))
    }

    /// True if there is a version of which two polls have not seen the same files yet.
    fn is_pending(&self) -> bool {
        self.sightings.values().any(|sighting| sighting.taken.is_none())
    }

    fn select(&mut self, by: &Looking<'_>) -> Result<Listing, Failure> {
        let found = by.directory.versions().map_err(|error| store_failure(&error))?;
        let admitted = found.iter().rev().filter(|(number, _)| by.policy.admits(**number));
        let mut admitted = admitted.take(VersionPolicy::MOST as usize);
        let mut listing = Listing::default();
        let mut good = 0;
        let mut sightings = std::mem::take(&mut self.sightings);
        while good < by.policy.most()
            && let Some((number, name)) = admitted.next()
        {
            let mut sighting = sightings.remove(number).unwrap_or_default();
            sighting.look(by, name);
            if let Some((_, version)) = &sighting.taken {
                good += u32::from(version.is_good(by.failing));
                listing.selected.insert(*number, version.clone());
            }
            self.sightings.insert(*number, sighting);
        }
        listing.has_more = good < by.policy.most() && self.is_pending();
        if let Some((number, name)) = admitted.next() {
            listing.has_more = true;
            let mut sighting = sightings.remove(number).unwrap_or_default();
            sighting.sight(by, name);
            self.sightings.insert(*number, sighting);
        }
        Ok(listing)
    }
}

impl Version {
    /// True if it is complete and may be servable.
    fn is_good(&self, failing: &BTreeSet<Digest>) -> bool {
        self.content.as_ref().is_ok_and(|digest| !failing.contains(digest))
    }
}

fn none_selected(directory: &Directory) -> Failure {
    let path = directory.path().display();
    let message = format!("{path} holds no version that is complete and selected");
    Failure::new(Reason::TagNotFound, message)
}

impl Sighting {
    /// Looks at the version, and takes it if its files have not changed since the last poll.
    fn look(&mut self, by: &Looking<'_>, name: &str) {
        let Some((look, files)) = self.sight(by, name) else { return };
        let is_taken = self.taken.as_ref().is_some_and(|(taken, _)| *taken == look);
        if !self.is_steady || is_taken {
            return;
        }
        match content(by.directory, name, &look, files) {
            Some(content) => {
                log(by.directory, name, &content);
                self.taken = Some((look, Version { name: name.to_owned(), content }));
            }
            // It is changing, or cannot be read now.
            None => self.last = None,
        }
    }

    /// Lists the files of the version without reading them. `None` if they are changing.
    fn sight(&mut self, by: &Looking<'_>, name: &str) -> Option<(Look, Option<Files>)> {
        let (look, files) = match by.directory.files(name) {
            Ok(files) => (Look::Files(files.fingerprint()), Some(files)),
            Err(Error::Changed(_)) => {
                self.last = None;
                return None;
            }
            Err(error) => (Look::Refused(store_failure(&error)), None),
        };
        let is_same = self.last.as_ref() == Some(&look);
        self.is_steady = is_same && (self.is_steady || by.turn == Turn::Due);
        self.last = (is_same || by.turn == Turn::Due).then(|| look.clone());
        Some((look, files))
    }
}

/// The content of a version; `None` if it is not certain.
fn content(
    directory: &Directory,
    name: &str,
    look: &Look,
    files: Option<Files>,
) -> Option<Result<Digest, Failure>> {
    let files = match (look, files) {
        (Look::Refused(failure), _) => return Some(Err(failure.clone())),
        (Look::Files(_), files) => files?,
    };
    let digest = files.digest();
    if let Err(error) = &digest {
        let path = files.path().display();
        tracing::warn!(%path, %error, "a version of a model cannot be read; it is tried again");
    }
    let now = directory.files(name).ok()?.fingerprint();
    digest.ok().filter(|_| *look == Look::Files(now)).map(Ok)
}

fn log(directory: &Directory, name: &str, content: &Result<Digest, Failure>) {
    let path = directory.path().join(name);
    match content {
        Ok(digest) => {
            tracing::info!(path = %path.display(), model.digest = %digest, "a version is complete");
        }
        Err(failure) => tracing::warn!(
            path = %path.display(), reason = %failure.reason, error = %failure.message,
            "a version is refused"
        ),
    }
}
