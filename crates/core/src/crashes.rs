//! Finds the version that ends an engine again and again.
//!
//! Only that an engine has restarted is visible, not why its process ended. So no single crash
//! convicts a version: it takes a series of crashes, each less than [`QUIET`] after the one before,
//! and the versions that were loading or had calls in flight in each of them.
//!
//! - **Loading.** A version is fresh until it has passed its first run in this engine once. A fresh
//!   version that was loading, or at its first run, at two crashes is convicted if no other one was at
//!   both. After the first of them, the versions that were loading are loaded one at a time, so at the
//!   second crash there is only one. Fresh versions are suspected first. Any other version has loaded
//!   well before, and is convicted at the fourth crash only. A version that comes up is cleared: a
//!   version that ends the engine by its load does not come up.
//! - **Calls.** The version whose request ends the engine had a call in flight at each crash, or one
//!   whose caller had ceased to wait shortly before ([`CutCalls`]). From the second crash on, the common
//!   versions make one call at a time, so that the third crash leaves one of them. It is convicted at
//!   the fourth crash.
//!
//! A restart at which nothing was loading and no call was in flight is no crash, unless it is part of
//! a series. An operator who restarts the engine twice under load convicts no version that has served:
//! for that, it takes four restarts within [`QUIET`] of each other, each during a call of the same
//! version alone.
//!
//! **A conviction ends by a trial.** Once the engine has run for [`QUIET`] without a crash, a convicted
//! version is loaded again, one at a time. If the engine ends while it is loaded or called, it is
//! convicted at once, and its next trial comes after twice the time; otherwise it is free after
//! [`QUIET`].
//!
//! A version that was convicted for its load may have been at two crashes by chance, while another
//! version's request caused them. If the engine crashes again in the same series without it, during a
//! call of a version that had calls in flight at both crashes too, it is released, once.
//!
//! **No version explains a series** if the crashes go on in spite of convictions, or if again and again
//! no version was at both a crash and the ones before: most likely something outside of the engine
//! kills it, or its memory is too small. Then the convicted versions are released, and until the
//! series is over, convictions take twice as many crashes.

mod as_list;
mod cut_calls;
mod sentence;
mod series;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub use cut_calls::CutCalls;
pub use sentence::Sentence;

use crate::{Failure, ModelKey};
use sentence::Trial;
use series::Series;

/// Crashes further apart have nothing to do with each other.
pub const QUIET: Duration = Duration::from_secs(600);
/// The crashes during loads that convict a fresh version.
const LOADS: u32 = 2;
/// The crashes that convict a version that has loaded well before, or is the only one with calls at
/// all of them.
const MOST: u32 = 4;
/// The crashes after which suspected versions make one call at a time.
const APART: u32 = 2;

/// The evidence against the versions in one engine. Times are since 1970, because the state outlives
/// the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crashes {
    #[serde(default)]
    series: Series,
    /// The number of crashes at which each version was loading, since it last came up.
    #[serde(default, with = "as_list")]
    loads: BTreeMap<ModelKey, u32>,
    /// The crashes with calls in flight, and the versions that had some at each of them.
    #[serde(default)]
    calls: u32,
    #[serde(default)]
    common: BTreeSet<ModelKey>,
    /// Versions that have passed their first run once: all others are fresh.
    #[serde(default)]
    passed: BTreeSet<ModelKey>,
    #[serde(default, with = "as_list")]
    convicted: BTreeMap<ModelKey, Sentence>,
    /// The version on trial.
    #[serde(default, with = "as_list", skip_serializing_if = "BTreeMap::is_empty")]
    on_trial: BTreeMap<ModelKey, Trial>,
    /// The time of the last crash, also of an earlier series.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    last: Duration,
    /// Versions that are being loaded now. If the process ends in disorder meanwhile, they count as
    /// loading at a crash.
    #[serde(default)]
    loading: BTreeSet<ModelKey>,
}

/// The consequences of a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The version that must not be loaded any more.
    pub convicted: Option<ModelKey>,
    /// Versions that were convicted wrongly.
    pub released: BTreeSet<ModelKey>,
    /// True if this crash shows that no version explains the series.
    pub is_unexplained: bool,
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
        self.expire(now);
        let is_idle = loading.is_empty() && calling.is_empty();
        if is_idle && !self.series.is_going_on() {
            return Verdict::default();
        }
        self.series.crashed(now);
        self.last = now;
        let was_unexplained = self.are_unexplained();
        let suspected = self.suspected(loading);
        // A fresh version explains a crash at its load.
        let is_explained = !suspected.is_subset(&self.passed);
        let released =
            if is_explained { BTreeSet::new() } else { self.release(&suspected, calling) };
        self.count(&suspected, calling);
        let guilty = self.by_trial(loading, calling);
        let guilty = guilty.or_else(|| self.by_load(&suspected, calling));
        let guilty = guilty.or_else(|| self.by_calls(&suspected));
        let convicted = guilty.map(|(key, sentence)| {
            // The crashes are explained, and the other versions are not suspected any more.
            self.clear();
            self.series.convict(&key);
            self.convicted.insert(key.clone(), sentence);
            key
        });
        let is_unexplained = self.are_unexplained() && !was_unexplained;
        Verdict { convicted, released, is_unexplained }
    }

    /// The versions to suspect among those that were loading: fresh ones first.
    fn suspected(&self, loading: &BTreeSet<ModelKey>) -> BTreeSet<ModelKey> {
        let fresh: BTreeSet<_> = loading.difference(&self.passed).cloned().collect();
        if fresh.is_empty() { loading.clone() } else { fresh }
    }

    /// Counts a crash against the versions that may have caused it.
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

    /// The version that is convicted because its trial has failed.
    fn by_trial(
        &mut self,
        loading: &BTreeSet<ModelKey>,
        calling: &BTreeSet<ModelKey>,
    ) -> Option<(ModelKey, Sentence)> {
        let was_there =
            |key: &ModelKey, _: &mut Trial| loading.contains(key) || calling.contains(key);
        let (key, trial) = self.on_trial.extract_if(.., was_there).next()?;
        let for_load = loading.contains(&key);
        let others = BTreeSet::new();
        Some((key, Sentence { for_load, crashes: 1, others, trials: trial.number }))
    }

    /// The version that is convicted for its load.
    fn by_load(
        &self,
        loading: &BTreeSet<ModelKey>,
        calling: &BTreeSet<ModelKey>,
    ) -> Option<(ModelKey, Sentence)> {
        let mut guilty = loading.iter().filter(|key| self.loads_of(key) >= self.least(key));
        let key = guilty.next().filter(|_| guilty.next().is_none())?;
        let crashes = self.loads_of(key);
        // Without calls at one of its crashes, no call explains all of them.
        let had_calls = self.calls >= crashes && !calling.is_empty();
        let others = self.common.iter().filter(|other| had_calls && *other != key);
        let others = others.cloned().collect();
        Some((key.clone(), Sentence { for_load: true, crashes, others, trials: 0 }))
    }

    /// The version that is convicted for its calls.
    fn by_calls(&self, loading: &BTreeSet<ModelKey>) -> Option<(ModelKey, Sentence)> {
        let is_enough = self.calls >= self.scaled(MOST) && loading.is_empty();
        let key = self.sole().filter(|_| is_enough)?;
        let others = BTreeSet::new();
        Some((key.clone(), Sentence { for_load: false, crashes: self.calls, others, trials: 0 }))
    }

    /// The number of crashes at loads of the version since it last came up.
    fn loads_of(&self, key: &ModelKey) -> u32 {
        self.loads.get(key).copied().unwrap_or_default()
    }

    /// The number of crashes at its loads that convicts the version.
    fn least(&self, key: &ModelKey) -> u32 {
        self.scaled(if self.passed.contains(key) { MOST } else { LOADS })
    }

    /// A number of crashes that has a consequence: twice as many if no version explains the series.
    fn scaled(&self, crashes: u32) -> u32 {
        if self.are_unexplained() { crashes * 2 } else { crashes }
    }

    /// Releases the versions that were convicted in this series and cannot have caused this crash, if
    /// it shows that they were convicted wrongly.
    fn release(
        &mut self,
        loading: &BTreeSet<ModelKey>,
        calling: &BTreeSet<ModelKey>,
    ) -> BTreeSet<ModelKey> {
        let was_unexplained = self.are_unexplained();
        let mut wrong = BTreeSet::new();
        if self.series.record(loading, calling, &self.passed) {
            wrong = self.series.take_refuted(&self.passed);
        } else if loading.is_empty() {
            wrong = self.take_bystanders(calling);
        }
        if self.are_unexplained() && !was_unexplained {
            self.clear();
        }
        self.convicted.retain(|key, _| !wrong.contains(key));
        wrong
    }

    /// Takes the versions that were convicted for their load, if this crash has the mark of the same
    /// cause: a call of a version that had calls at all the crashes that convicted them.
    fn take_bystanders(&mut self, calling: &BTreeSet<ModelKey>) -> BTreeSet<ModelKey> {
        let mut wrong = BTreeSet::new();
        for key in self.series.convicted_once() {
            let Some(sentence) = self.convicted.get(&key) else { continue };
            if !sentence.others.is_disjoint(calling) {
                // The crashes that it was convicted for count for the others.
                (self.calls, self.common) = (sentence.crashes, sentence.others.clone());
                self.series.release(&key);
                wrong.insert(key);
            }
        }
        wrong
    }

    /// Records that a version is being loaded.
    pub fn load(&mut self, key: &ModelKey) {
        self.loading.insert(key.clone());
    }

    /// Records that a version has passed its first run.
    pub fn arrived(&mut self, key: &ModelKey) {
        self.loading.remove(key);
        self.loads.remove(key);
        self.passed.insert(key.clone());
    }

    /// Records that a version is not in the engine any more.
    pub fn left(&mut self, key: &ModelKey) {
        self.loading.remove(key);
    }

    /// Takes up the state of an earlier process. If that ended in disorder while it loaded versions,
    /// the engine has most likely ended with it: a crash. Returns the convicted version.
    pub fn resume(&mut self, now: Duration) -> Verdict {
        if !self.convicted.is_empty() && self.last.is_zero() {
            // The program before did not record it.
            self.last = now;
        }
        let loading = std::mem::take(&mut self.loading);
        if loading.is_empty() {
            return Verdict::default();
        }
        self.crashed(now, &loading, &BTreeSet::new())
    }

    /// Records that the process ends in order.
    pub fn stop(&mut self) {
        self.loading.clear();
    }

    /// Ends the trial that has passed, and begins the next one that is due. Returns its version, which
    /// is to be loaded.
    pub fn try_again(&mut self, now: Duration) -> Option<ModelKey> {
        self.on_trial.retain(|_, trial| now < trial.until);
        if !self.on_trial.is_empty() || self.trial_at().is_none_or(|at| now < at) {
            return None;
        }
        let next = self.convicted.iter().min_by_key(|(_, sentence)| sentence.trials)?.0.clone();
        let number = self.convicted.remove(&next)?.trials + 1;
        self.on_trial.insert(next.clone(), Trial { number, until: now + QUIET });
        Some(next)
    }

    /// The time of the next trial, if there is no crash before.
    fn trial_at(&self) -> Option<Duration> {
        self.convicted.values().map(|sentence| self.last + sentence.pause()).min()
    }

    /// The next time at which [`Self::try_again`] changes something.
    pub fn tries_at(&self) -> Option<Duration> {
        let ends = self.on_trial.values().map(|trial| trial.until);
        ends.min().or_else(|| self.trial_at())
    }

    /// Loads a version again that was convicted: its tag has moved, an operator wants it, or it is on
    /// trial.
    pub fn pardon(&mut self, key: &ModelKey) {
        self.convicted.remove(key);
        self.loads.remove(key);
        self.common.remove(key);
        self.series.pardon(key);
    }

    /// Ends the series after ten minutes without a crash, with all suspicion. Returns true if there
    /// was one.
    pub fn expire(&mut self, now: Duration) -> bool {
        let is_over = self.expires_at().is_some_and(|at| now >= at);
        if is_over {
            self.clear();
            self.series = Series::default();
        }
        is_over
    }

    /// Clears all suspicion.
    fn clear(&mut self) {
        self.calls = 0;
        self.loads.clear();
        self.common.clear();
    }

    /// The time at which [`Self::expire`] ends the series.
    pub fn expires_at(&self) -> Option<Duration> {
        self.series.expires_at()
    }

    /// Forgets that a version has passed its first run, because it is not known any more. Returns
    /// false if it has not.
    pub fn forget(&mut self, key: &ModelKey) -> bool {
        self.passed.remove(key)
    }

    /// Forgets the versions for which `is_known` returns false, like [`Self::forget`], unless they are
    /// suspected.
    pub fn retain(&mut self, is_known: impl Fn(&ModelKey) -> bool) {
        let (loads, common) = (&self.loads, &self.common);
        let is_suspect = |key: &ModelKey| loads.contains_key(key) || common.contains(key);
        self.passed.retain(|key| is_known(key) || is_suspect(key));
    }

    /// True if no version explains the crashes: most likely something else kills the engine.
    pub fn are_unexplained(&self) -> bool {
        self.series.is_unexplained()
    }

    /// True if the load of the version may end the engine, if no other version's calls may do it, or
    /// if it is on trial.
    /// Such a version is loaded when all others have served for a while.
    pub fn is_grave(&self, key: &ModelKey) -> bool {
        self.on_trial.contains_key(key)
            || self.loads_of(key) >= self.least(key) / 2
            || self.sole() == Some(key)
    }

    /// True if the version has to be loaded while no other one is.
    pub fn is_suspect(&self, key: &ModelKey) -> bool {
        let by_load = self.loads.contains_key(key) && !self.are_unexplained();
        by_load || self.is_grave(key) || self.common().contains(key)
    }

    /// The versions that may have ended the engine by a call. If no version explains the crashes,
    /// only those that have been at many of them.
    pub fn common(&self) -> &BTreeSet<ModelKey> {
        const NONE: &BTreeSet<ModelKey> = &BTreeSet::new();
        let is_enough = !self.are_unexplained() || self.calls >= MOST;
        if is_enough { &self.common } else { NONE }
    }

    /// True if the versions that are suspected for their calls may make only one call at a time.
    pub fn are_apart(&self) -> bool {
        self.calls >= self.scaled(APART) && self.common.len() > 1
    }

    /// The only version that had calls in flight at each of several crashes.
    pub fn sole(&self) -> Option<&ModelKey> {
        let is_enough = self.calls >= self.scaled(APART) && self.common.len() == 1;
        self.common.first().filter(|_| is_enough)
    }

    /// True if the next crash during a call of the version convicts it.
    pub fn is_next(&self, key: &ModelKey) -> bool {
        self.sole() == Some(key) && self.calls + 1 >= self.scaled(MOST)
    }

    /// The convicted versions.
    pub fn convicted(&self) -> &BTreeMap<ModelKey, Sentence> {
        &self.convicted
    }

    /// The failure of a convicted version.
    pub fn failure(&self, key: &ModelKey) -> Option<Failure> {
        self.convicted.get(key).map(Sentence::failure)
    }
}

#[cfg(test)]
mod tests;
