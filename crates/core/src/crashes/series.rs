//! A series of crashes, and whether a version explains it.
//!
//! A crash at which a fresh version was loading is explained by that version. All other crashes of a
//! series have one cause as a rule, so one version was loading or had calls in flight at each of them.
//! A crash at which none of the versions was that were at all the ones before clears all of them. One
//! such crash may be a restart by hand. After [`CLEARED`] of them, or if the crashes go on after
//! [`CONVICTIONS`] versions were convicted that had loaded well before, no version explains the series.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use super::QUIET;
use crate::ModelKey;

/// The crashes without a common version by which no version explains the series.
const CLEARED: u32 = 3;
/// The convictions of versions that had loaded well before, after which another crash shows that no
/// version explains the series.
const CONVICTIONS: usize = 2;

/// The crashes of which each came less than [`QUIET`] after the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Series {
    /// The time of the last crash.
    last: Option<Duration>,
    /// The versions that were loading or had calls in flight at each crash since the last one without
    /// a common version, and since the last conviction.
    common: Option<BTreeSet<ModelKey>>,
    /// The number of crashes without a common version.
    cleared: u32,
    /// The versions that were convicted in this series.
    convicted: BTreeSet<ModelKey>,
    /// The versions that were released because a call of another version explains their crashes.
    released: BTreeSet<ModelKey>,
    is_unexplained: bool,
}

impl Series {
    /// Records the time of a crash.
    pub(super) fn crashed(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// Records a crash at which no fresh version was loading. Returns true if it shows that no
    /// version explains the series. `passed` are the versions that are not fresh.
    pub(super) fn record(
        &mut self,
        loading: &BTreeSet<ModelKey>,
        calling: &BTreeSet<ModelKey>,
        passed: &BTreeSet<ModelKey>,
    ) -> bool {
        let present: BTreeSet<_> = loading.union(calling).cloned().collect();
        let common = match &self.common {
            Some(before) => before.intersection(&present).cloned().collect(),
            None => present.clone(),
        };
        let has_cleared = common.is_empty();
        self.cleared += u32::from(has_cleared);
        if !present.is_empty() {
            self.common = Some(if has_cleared { present } else { common });
        }
        let goes_on =
            loading.is_empty() && self.convicted.intersection(passed).count() >= CONVICTIONS;
        (has_cleared && self.cleared >= CLEARED) || goes_on
    }

    /// Takes the convicted versions after a crash that no version explains. From the second time on,
    /// versions that were convicted fresh stay so.
    pub(super) fn take_refuted(&mut self, passed: &BTreeSet<ModelKey>) -> BTreeSet<ModelKey> {
        let is_first = !std::mem::replace(&mut self.is_unexplained, true);
        let refuted = self.convicted.iter().filter(|key| is_first || passed.contains(*key));
        let refuted: BTreeSet<_> = refuted.cloned().collect();
        self.convicted.retain(|key| !refuted.contains(key));
        refuted
    }

    /// Records that a version was convicted: it explains the crashes until now.
    pub(super) fn convict(&mut self, key: &ModelKey) {
        self.common = None;
        self.convicted.insert(key.clone());
    }

    /// Forgets the conviction of a version.
    pub(super) fn pardon(&mut self, key: &ModelKey) {
        self.convicted.remove(key);
    }

    /// Records that a call of another version explains the crashes that convicted a version.
    pub(super) fn release(&mut self, key: &ModelKey) {
        self.convicted.remove(key);
        self.released.insert(key.clone());
    }

    /// The versions that were convicted in this series and never released.
    pub(super) fn convicted_once(&self) -> BTreeSet<ModelKey> {
        self.convicted.difference(&self.released).cloned().collect()
    }

    /// True from the first crash on.
    pub(super) fn is_going_on(&self) -> bool {
        self.last.is_some()
    }

    /// True if no version explains the crashes.
    pub(super) fn is_unexplained(&self) -> bool {
        self.is_unexplained
    }

    /// The time at which the series is over, unless there is another crash.
    pub(super) fn expires_at(&self) -> Option<Duration> {
        self.last.map(|last| last + QUIET)
    }
}
