//! Finds the version that ends an engine again and again.
//!
//! Only that an engine has restarted is visible, not why its process ended. So no single crash
//! convicts a version: it takes crashes in a row, each less than [`QUIET`] after the one before, and
//! the versions that were loading or had calls in flight in each of them.
//!
//! - **Loading.** A version that was loading, or at its first run, at two crashes is convicted if no
//!   other one was at both. After the first of them, the versions that were loading are loaded one at
//!   a time, so at the second crash there is only one. If some of them were never in the engine for
//!   [`QUIET`] without a crash, only these are suspected. A version that was has loaded well before,
//!   and is convicted at the fourth crash only.
//! - **Calls.** The version whose request ends the engine had a call in flight at each crash. From the
//!   second crash on, the common versions make one call at a time, so that the third crash leaves
//!   one of them. It is convicted at the fourth crash.
//!
//! A restart at which nothing was loading and no call was in flight is no crash. An operator who
//! restarts the engine twice under load convicts no version that has served: for that, it takes four
//! restarts within [`QUIET`] of each other, each during a call of the same version alone.
//!
//! A version that was convicted for its load may have been at two crashes by chance, while another
//! version's request caused them. If the engine crashes again without it, during a call of a version
//! that had calls in flight at the second crash too, it is released.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Failure, ModelKey, Reason};

/// Crashes further apart have nothing to do with each other. A version that was in the engine for
/// this long without a crash is proven.
pub const QUIET: Duration = Duration::from_secs(600);
/// The crashes during loads that convict a version.
const LOADS: u32 = 2;
/// The crashes that convict a version that is proven, or is the only one with calls at all of them.
const MOST: u32 = 4;
/// The crashes after which suspected versions make one call at a time.
const APART: u32 = 2;

/// The evidence against the versions in one engine. Times are since 1970, because the state outlives
/// the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crashes {
    /// The time of the last crash.
    #[serde(default)]
    last: Option<Duration>,
    /// The number of crashes at which each version was loading.
    #[serde(default, with = "as_list")]
    loads: BTreeMap<ModelKey, u32>,
    /// The crashes with calls in flight, and the versions that had some at each of them.
    #[serde(default)]
    calls: u32,
    #[serde(default)]
    common: BTreeSet<ModelKey>,
    /// Versions that were up for [`QUIET`] without a crash.
    #[serde(default)]
    proven: BTreeSet<ModelKey>,
    #[serde(default, with = "as_list")]
    convicted: BTreeMap<ModelKey, Sentence>,
    /// Versions that are being loaded now. If the process ends in disorder meanwhile, they count as
    /// loading at a crash.
    #[serde(default)]
    loading: BTreeSet<ModelKey>,
    /// The time since which each version is up.
    #[serde(skip)]
    up: BTreeMap<ModelKey, Duration>,
}

/// The reason why a version is not loaded any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentence {
    /// True: for crashes during its load or first run. False: for crashes during its calls.
    pub for_load: bool,
    /// The number of crashes.
    pub crashes: u32,
    /// Versions with calls in flight at the last of the crashes, which may have caused it.
    others: BTreeSet<ModelKey>,
}

/// The consequences of a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The version that must not be loaded any more.
    pub convicted: Option<ModelKey>,
    /// Versions that were convicted wrongly.
    pub released: Vec<ModelKey>,
}

impl Crashes {
    /// Records a crash at `now` with the versions that were loading, and those that had calls in
    /// flight.
    pub fn crashed(
        &mut self,
        now: Duration,
        loading: &BTreeSet<ModelKey>,
        calling: &BTreeSet<ModelKey>,
    ) -> Verdict {
        if loading.is_empty() && calling.is_empty() {
            return Verdict::default();
        }
        self.prove(now);
        self.expire(now);
        self.last = Some(now);
        let suspected = self.suspected(loading);
        let released = if suspected.is_empty() { self.release(calling) } else { Vec::new() };
        self.count(&suspected, calling);
        let guilty = self.by_load(&suspected, calling).or_else(|| self.by_calls(&suspected));
        let convicted = guilty.map(|(key, sentence)| {
            // The crashes are explained, and the other versions are not suspected any more.
            self.forget();
            self.convicted.insert(key.clone(), sentence);
            key
        });
        Verdict { convicted, released }
    }

    /// The versions to suspect among those that were loading: unproven ones first.
    fn suspected(&self, loading: &BTreeSet<ModelKey>) -> BTreeSet<ModelKey> {
        let unproven: BTreeSet<_> = loading.difference(&self.proven).cloned().collect();
        if unproven.is_empty() { loading.clone() } else { unproven }
    }

    fn count(&mut self, loading: &BTreeSet<ModelKey>, calling: &BTreeSet<ModelKey>) {
        loading.iter().for_each(|key| *self.loads.entry(key.clone()).or_default() += 1);
        if calling.is_empty() {
            return;
        }
        self.common.retain(|key| calling.contains(key));
        if self.common.is_empty() {
            (self.calls, self.common) = (0, calling.clone());
        }
        self.calls += 1;
    }

    fn by_load(
        &self,
        loading: &BTreeSet<ModelKey>,
        calling: &BTreeSet<ModelKey>,
    ) -> Option<(ModelKey, Sentence)> {
        let least = |key: &ModelKey| if self.proven.contains(key) { MOST } else { LOADS };
        let crashes = |key: &ModelKey| self.loads.get(key).copied().unwrap_or_default();
        let mut guilty = loading.iter().filter(|key| crashes(key) >= least(key));
        let key = guilty.next().filter(|_| guilty.next().is_none())?;
        let others = calling.iter().filter(|other| *other != key).cloned().collect();
        Some((key.clone(), Sentence { for_load: true, crashes: crashes(key), others }))
    }

    fn by_calls(&self, loading: &BTreeSet<ModelKey>) -> Option<(ModelKey, Sentence)> {
        let is_enough = self.calls >= MOST && loading.is_empty();
        let key = self.sole().filter(|_| is_enough)?;
        let others = BTreeSet::new();
        Some((key.clone(), Sentence { for_load: false, crashes: self.calls, others }))
    }

    /// Releases versions that were convicted for their load, if a crash without them has the mark of
    /// the same cause.
    fn release(&mut self, calling: &BTreeSet<ModelKey>) -> Vec<ModelKey> {
        let is_wrong = |sentence: &Sentence| !sentence.others.is_disjoint(calling);
        let wrong = self.convicted.iter().filter(|(_, sentence)| is_wrong(sentence));
        let wrong: Vec<_> = wrong.map(|(key, _)| key.clone()).collect();
        for sentence in wrong.iter().filter_map(|key| self.convicted.remove(key)) {
            // The crashes that it was convicted for count for the others.
            self.calls = sentence.crashes;
            self.common = sentence.others;
        }
        wrong
    }

    /// Records that a version is being loaded.
    pub fn load(&mut self, key: &ModelKey) {
        self.up.remove(key);
        self.loading.insert(key.clone());
    }

    /// Records that a version has passed its first run.
    pub fn arrived(&mut self, now: Duration, key: &ModelKey) {
        self.loading.remove(key);
        self.up.entry(key.clone()).or_insert(now);
    }

    /// Records that a version is not in the engine any more.
    pub fn left(&mut self, key: &ModelKey) {
        self.loading.remove(key);
        self.up.remove(key);
    }

    /// Takes up the state of an earlier process. If that ended in disorder while it loaded versions,
    /// the engine has most likely ended with it: a crash. Returns the convicted version.
    pub fn resume(&mut self, now: Duration) -> Verdict {
        let loading = std::mem::take(&mut self.loading);
        self.crashed(now, &loading, &BTreeSet::new())
    }

    /// Records that the process ends in order.
    pub fn stop(&mut self, now: Duration) {
        self.prove(now);
        self.loading.clear();
    }

    /// Loads a version again that was convicted: its tag has moved, or an operator wants it.
    pub fn pardon(&mut self, key: &ModelKey) {
        self.convicted.remove(key);
        self.loads.remove(key);
        self.common.remove(key);
    }

    fn prove(&mut self, now: Duration) {
        let last = self.last.unwrap_or_default();
        let is_long = |since: &Duration| now.saturating_sub((*since).max(last)) >= QUIET;
        let proven = self.up.iter().filter(|(_, since)| is_long(since));
        self.proven.extend(proven.map(|(key, _)| key.clone()));
    }

    /// Clears all suspicion after ten minutes without a crash. Returns true if there was any.
    pub fn expire(&mut self, now: Duration) -> bool {
        let is_over = self.last.is_some_and(|last| now.saturating_sub(last) >= QUIET);
        if is_over {
            self.forget();
        }
        is_over
    }

    fn forget(&mut self) {
        (self.last, self.calls) = (None, 0);
        self.loads.clear();
        self.common.clear();
    }

    /// The time at which [`Self::expire`] clears the suspicion.
    pub fn expires_at(&self) -> Option<Duration> {
        self.last.map(|last| last + QUIET)
    }

    /// Forgets versions that are not known any more.
    pub fn retain(&mut self, is_known: impl Fn(&ModelKey) -> bool) {
        self.proven.retain(|key| is_known(key));
        self.convicted.retain(|key, _| is_known(key));
    }

    /// True if the load of the version may end the engine, or if no other version's calls may do it.
    /// Such a version is loaded when all others have served for a while.
    pub fn is_grave(&self, key: &ModelKey) -> bool {
        self.loads.contains_key(key) || self.sole() == Some(key)
    }

    /// True if the version has to be loaded while no other one is.
    pub fn is_suspect(&self, key: &ModelKey) -> bool {
        self.loads.contains_key(key) || self.common.contains(key)
    }

    /// The versions that may have ended the engine by a call.
    pub fn common(&self) -> &BTreeSet<ModelKey> {
        &self.common
    }

    /// True if the versions that are suspected for their calls may make only one call at a time.
    pub fn are_apart(&self) -> bool {
        self.calls >= APART && self.common.len() > 1
    }

    /// The only version that had calls in flight at each of several crashes.
    pub fn sole(&self) -> Option<&ModelKey> {
        self.common.first().filter(|_| self.calls >= APART && self.common.len() == 1)
    }

    /// The convicted versions.
    pub fn convicted(&self) -> &BTreeMap<ModelKey, Sentence> {
        &self.convicted
    }

    /// The failure of a convicted version.
    pub fn failure(&self, key: &ModelKey) -> Option<Failure> {
        let Sentence { for_load, crashes, .. } = self.convicted.get(key)?;
        let during = if *for_load { "its load or first run" } else { "its calls" };
        let message = format!(
            "the engine ended {crashes} times during {during}: it is not loaded again until its \
             tag moves to another digest and back, or an operator loads it"
        );
        Some(Failure::new(Reason::ModelQuarantined, message))
    }
}

/// Maps whose keys are no text, as lists of pairs.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
