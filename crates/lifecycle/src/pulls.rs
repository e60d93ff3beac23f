//! The pulls under way, and the versions that wait for them.

use std::collections::BTreeMap;

use outrigger_core::{Attempt, ModelKey};
use tokio::task::AbortHandle;

use crate::jobs::Origin;

/// The pulls under way. Models with the same digest and repository share one.
#[derive(Default)]
pub(crate) struct Pulls(BTreeMap<Origin, UnderWay>);

struct UnderWay {
    waiting: BTreeMap<ModelKey, Attempt>,
    job: AbortHandle,
}

impl Pulls {
    /// Adds a version that waits for the pull of `origin`; returns false if there is no such pull.
    pub(crate) fn join(&mut self, origin: &Origin, key: &ModelKey, attempt: Attempt) -> bool {
        let pull = self.0.get_mut(origin);
        pull.map(|pull| pull.waiting.insert(key.clone(), attempt)).is_some()
    }

    /// Registers a new pull that `key` waits for.
    pub(crate) fn begin(
        &mut self,
        origin: Origin,
        key: ModelKey,
        attempt: Attempt,
        job: AbortHandle,
    ) {
        self.0.insert(origin, UnderWay { waiting: BTreeMap::from([(key, attempt)]), job });
    }

    /// Removes `key` from the waiting versions. Cancels a pull that no version waits for.
    pub(crate) fn cancel(&mut self, key: &ModelKey) {
        // The origin of the key may have changed since the pull began.
        let first = Origin { digest: key.digest, location: None };
        let pulls = self.0.range_mut(first..);
        let mut pulls = pulls.take_while(|(origin, _)| origin.digest == key.digest);
        let Some((origin, pull)) = pulls.find(|(_, pull)| pull.waiting.contains_key(key)) else {
            return;
        };
        pull.waiting.remove(key);
        if pull.waiting.is_empty() {
            pull.job.abort();
            let origin = origin.clone();
            self.0.remove(&origin);
        }
    }

    /// Takes the versions that wait for an ended pull. Empty if the pull was cancelled as it ended:
    /// its result does not apply to the pull after it.
    pub(crate) fn end(&mut self, origin: &Origin) -> BTreeMap<ModelKey, Attempt> {
        if self.0.get(origin).is_some_and(|pull| !pull.job.is_finished()) {
            return BTreeMap::new();
        }
        self.0.remove(origin).map(|pull| pull.waiting).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
