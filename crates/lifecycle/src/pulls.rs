//! The pulls that are under way, and the versions that wait for them.

use std::collections::BTreeMap;

use outrigger_core::{Attempt, ModelKey};
use tokio::task::AbortHandle;

use crate::jobs::Origin;

/// The pulls that are under way. Models of one digest and one repository share one.
#[derive(Default)]
pub(crate) struct Pulls(BTreeMap<Origin, UnderWay>);

struct UnderWay {
    waiting: BTreeMap<ModelKey, Attempt>,
    job: AbortHandle,
}

impl Pulls {
    /// Waits for the pull of `origin`; `false`: there is none.
    pub(crate) fn join(&mut self, origin: &Origin, key: &ModelKey, attempt: Attempt) -> bool {
        let pull = self.0.get_mut(origin);
        pull.map(|pull| pull.waiting.insert(key.clone(), attempt)).is_some()
    }

    /// A pull has begun, which `key` waits for.
    pub(crate) fn begin(
        &mut self,
        origin: Origin,
        key: ModelKey,
        attempt: Attempt,
        job: AbortHandle,
    ) {
        self.0.insert(origin, UnderWay { waiting: BTreeMap::from([(key, attempt)]), job });
    }

    /// `key` does not wait any more. A pull that nothing waits for is cancelled.
    pub(crate) fn cancel(&mut self, origin: &Origin, key: &ModelKey) {
        let Some(pull) = self.0.get_mut(origin) else { return };
        pull.waiting.remove(key);
        if pull.waiting.is_empty() {
            pull.job.abort();
            self.0.remove(origin);
        }
    }

    /// Takes the versions that wait for a pull that has ended. A pull that was cancelled
    /// as it ended says nothing about the pull after it: then none.
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
