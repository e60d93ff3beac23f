//! The polls of a directory: a version is taken once two polls in a row have found the same files.

use std::collections::BTreeMap;

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
    /// The state that the last poll found; `None` if it changed during the poll.
    last: Option<Look>,
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

impl Polls {
    /// Looks at the directory. Returns its state if that is not `last`, the state as it is known;
    /// for the first time after two polls. Blocks.
    pub(super) fn poll(
        &mut self,
        directory: &Directory,
        policy: &VersionPolicy,
        last: Option<&Listing>,
    ) -> Option<Listing> {
        let selected = self.select(directory, policy);
        self.count = (self.count + 1).min(2);
        // The earlier selection stays in service.
        let failed =
            |failure| Listing { failure: Some(failure), ..last.cloned().unwrap_or_default() };
        let listing = match selected {
            Ok(selected) if !selected.is_empty() => Listing { selected, failure: None },
            // The next poll can tell.
            Ok(_) if self.is_pending() => return None,
            Ok(_) => failed(none_selected(directory)),
            Err(failure) => failed(failure),
        };
        Some(listing).filter(|listing| self.count >= 2 && last != Some(listing))
    }

    /// True if there is a version of which two polls have not seen the same files yet.
    fn is_pending(&self) -> bool {
        self.sightings.values().any(|sighting| sighting.taken.is_none())
    }

    fn select(
        &mut self,
        directory: &Directory,
        policy: &VersionPolicy,
    ) -> Result<BTreeMap<u64, Version>, Failure> {
        let found = directory.versions().map_err(|error| store_failure(&error))?;
        let admitted = found.iter().rev().filter(|(number, _)| policy.admits(**number));
        let (mut selected, mut good) = (BTreeMap::new(), 0);
        let mut sightings = std::mem::take(&mut self.sightings);
        for (number, name) in admitted.take(VersionPolicy::MOST as usize) {
            if good >= policy.most() {
                break;
            }
            let mut sighting = sightings.remove(number).unwrap_or_default();
            sighting.look(directory, name);
            if let Some((_, version)) = &sighting.taken {
                good += u32::from(version.content.is_ok());
                selected.insert(*number, version.clone());
            }
            self.sightings.insert(*number, sighting);
        }
        Ok(selected)
    }
}

fn none_selected(directory: &Directory) -> Failure {
    let path = directory.path().display();
    let message = format!("{path} holds no version that is complete and selected");
    Failure::new(Reason::TagNotFound, message)
}

impl Sighting {
    fn look(&mut self, directory: &Directory, name: &str) {
        let (look, files) = match directory.files(name) {
            Ok(files) => (Look::Files(files.fingerprint()), Some(files)),
            Err(Error::Changed(_)) => {
                self.last = None;
                return;
            }
            Err(error) => (Look::Refused(store_failure(&error)), None),
        };
        let before = self.last.replace(look.clone());
        let is_taken = self.taken.as_ref().is_some_and(|(taken, _)| *taken == look);
        if before.as_ref() != Some(&look) || is_taken {
            return;
        }
        match content(directory, name, &look, files) {
            Some(content) => {
                log(directory, name, &content);
                self.taken = Some((look, Version { name: name.to_owned(), content }));
            }
            // It is changing, or cannot be read now.
            None => self.last = None,
        }
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
