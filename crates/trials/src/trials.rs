//! The trials of all tags: their beginnings, ends, judgements and decisions.

mod completed;
mod journal;
mod show;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use outrigger_canary::{Cause, Conclusion, Mode, Salt, Share};
use outrigger_core::{
    Digest, Failure, ModelKey, ModelName, Moment, Reason,
    machines::{Answer, TagKey, of_name},
};
use tokio::sync::watch;

use self::journal::Journal;
use crate::{
    aside::{Aside, Worker, aside},
    config::CanaryDefaults,
    context::Context,
    effect::Effect,
    judge::Judge,
    pair::Pair,
    promotion::Reply,
    reports::Reports,
    set::{TrialSet, not_found},
    split::{Servable, Split},
    views::{Act, By, Canaries, CanaryView},
};

/// The interval at which outcomes are collected and judged.
const PERIOD: Duration = Duration::from_secs(1);

/// The trials of all tags. Steps leave effects, to be taken with [`Self::take_effects`].
pub struct Trials {
    set: TrialSet,
    judge: Box<dyn Judge>,
    judge_at: Option<Moment>,
    /// The canaries that are shown, by the tag that each is a canary of.
    views: BTreeMap<TagKey, CanaryView>,
    shown: watch::Sender<Arc<Canaries>>,
    journal: Journal,
    aside: Aside,
}

/// The routes of a tag on trial: the canary and its route, its share, and the trial's number.
#[derive(Debug, Clone, PartialEq)]
pub struct Arms {
    /// The canary.
    pub canary: ModelKey,
    route: u64,
    share: Option<Share>,
    trial: u64,
}

impl Trials {
    /// Creates an empty set of trials, and the worker to run beside it. Processes with the same
    /// `salt` give a routing key the same arm.
    pub fn new(config: CanaryDefaults, salt: Salt, judge: Box<dyn Judge>) -> (Self, Worker) {
        let (aside, worker) = aside();
        let trials = Self {
            set: TrialSet::new(config, salt),
            judge,
            judge_at: None,
            views: BTreeMap::new(),
            shown: watch::Sender::default(),
            journal: Journal::default(),
            aside,
        };
        (trials, worker)
    }

    /// Sets the configuration of trials that begin from now on. Running trials keep theirs.
    pub fn reconfigure(&mut self, config: CanaryDefaults) {
        self.set.config = config;
    }

    /// The time of the next judgement; `None` if there is no trial.
    pub fn judge_at(&self) -> Option<Moment> {
        self.judge_at
    }

    /// Takes the effects of earlier steps.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.set.effects)
    }

    /// Log lines and metrics about changes of routes, to be written once these are in force.
    pub fn reports(&mut self) -> &mut Reports {
        &mut self.set.reports
    }

    /// Takes the models whose routes or views may have changed.
    #[must_use]
    pub fn take_changed(&mut self) -> BTreeSet<ModelName> {
        std::mem::take(&mut self.set.changed)
    }

    /// Collects outcomes, judges the trials, and acts on the verdicts. Must be followed by
    /// [`Self::show`], once the routes are in force.
    pub fn judge(&mut self, cx: &dyn Context) {
        self.judge_at = None;
        let keys: Vec<_> = self.set.running.keys().cloned().collect();
        for key in keys {
            self.judge_one(&key, cx.now());
        }
    }

    fn judge_one(&mut self, key: &TagKey, now: Moment) {
        let Some(running) = self.set.running.get_mut(key) else { return };
        running.collect(now);
        let (is_changed, conclusion) = running.judge(&mut *self.judge, now, &mut self.set.reports);
        if is_changed {
            self.set.changed.insert(key.name.clone());
        }
        if let Some(conclusion) = conclusion {
            self.conclude(key, conclusion);
        }
        let Some(running) = self.set.running.get_mut(key) else { return };
        self.set.effects.extend(running.retry_move(now));
    }

    /// Carries out a conclusion, unless a decision was made already. The judge concludes proven
    /// harm in every round, so a rollback also follows a failed promotion.
    fn conclude(&mut self, key: &TagKey, conclusion: Conclusion) {
        let Some(running) = self.set.running.get_mut(key) else { return };
        let by = By::judge(running.reason(conclusion.cause()));
        match conclusion {
            Conclusion::Rollback(Cause::Proved | Cause::Overload)
                if running.promotion.retract() =>
            {
                self.set.roll_back(key, by);
            }
            _ if running.promotion.by().is_some() => {}
            // Other control planes may have the traffic that this one lacks.
            Conclusion::Rollback(_) => drop(self.set.give_up(key, by)),
            Conclusion::Promote(_) if running.mode() == Mode::Recommend => {
                self.set.recommend(key, by);
            }
            Conclusion::Promote(_) => self.set.promote(key, by),
        }
    }

    /// Starts and ends trials of models whose versions became available or whose tags have moved.
    pub fn renew(&mut self, changed: &BTreeSet<ModelName>, cx: &dyn Context) {
        for name in changed {
            let running = of_name(&self.set.running, name).map(|(key, _)| key);
            let gone = running.filter(|key| cx.tag(key).is_none());
            let mut keys = cx.tags_of(name);
            keys.extend(gone.cloned());
            keys.iter().for_each(|key| self.renew_one(key, cx));
            let paused = of_name(&self.set.paused, name).map(|(key, _)| key);
            let gone: Vec<_> = paused.filter(|key| cx.tag(key).is_none()).cloned().collect();
            gone.iter().for_each(|key| drop(self.set.paused.remove(key)));
        }
    }

    fn renew_one(&mut self, key: &TagKey, cx: &dyn Context) {
        let named = cx.canary(key);
        // The tag's serving digest stays known while the engine is away.
        let live = cx.tag(key).and_then(|tag| tag.serving);
        if let Some(running) = self.set.running.get(key) {
            let pair = running.pair;
            if let Some(failure) =
                quarantine(key, pair.canary, cx).filter(|_| live != Some(pair.canary))
            {
                return self.set.roll_back(key, By::judge(failure.to_string()));
            }
            match (live, &named) {
                (Some(live), _) if live == pair.canary => return self.set.end_promoted(key),
                (Some(live), _) if live != pair.live => {
                    self.set.supersede(key, "the tag has moved");
                }
                (_, None) => return self.set.pause(key, cx),
                (_, Some((_, named))) if *named != pair.canary => {
                    self.set.supersede(key, "the canary's tag has moved");
                }
                _ => return,
            }
        }
        let (Some((canary_tag, canary)), Some(live)) = (named, live) else { return };
        self.try_canary(key, canary_tag, Pair { live, canary }, cx);
    }

    /// Starts a trial if the canary is not rejected and both versions are up.
    fn try_canary(&mut self, key: &TagKey, canary_tag: TagKey, pair: Pair, cx: &dyn Context) {
        let Pair { live, canary } = pair;
        if cx.tag(&canary_tag).and_then(|tag| tag.rejected) == Some(canary) {
            return;
        }
        if canary == live {
            return self.set.canary_is_live(key, canary_tag, canary, cx);
        }
        if let Some(failure) = quarantine(key, canary, cx) {
            return self.set.refuse(key, canary_tag, pair, &failure);
        }
        // Without live there is neither a comparison nor a fallback.
        let is_up = |digest| ready(cx, &ModelKey { name: key.name.clone(), digest }).is_some();
        if is_up(live) && is_up(canary) {
            self.set.begin(key, canary_tag, pair, cx);
        }
    }

    /// Carries out a person's decision. Replies CANARY_NOT_FOUND without a trial, and
    /// CANARY_PROMOTED if it comes too late; if only the registry can tell, the reply comes later.
    pub fn decide(&mut self, key: &TagKey, act: Act, by: By, done: Reply, cx: &dyn Context) {
        if act == Act::Abort {
            self.set.resume(key, cx);
        }
        if !self.set.running.contains_key(key) {
            // The caller may have gone.
            done.send(Err(not_found(key))).ok();
            return;
        }
        match act {
            Act::Promote => {
                self.set.promote(key, by);
                done.send(Ok(())).ok();
            }
            Act::Abort => self.set.abort(key, by, done),
        }
    }

    /// The routes of a tag answered by `answer`, if the tag is on trial and its canary is up.
    pub fn arms(&self, key: &TagKey, answer: &Answer, cx: &dyn Context) -> Option<Arms> {
        let running = self.set.running.get(key)?;
        let Answer::Ready(live, _) = answer else { return None };
        let canary = ModelKey { name: key.name.clone(), digest: running.pair.canary };
        if live.digest != running.pair.live {
            return None;
        }
        Some(Arms {
            route: ready(cx, &canary)?,
            canary,
            share: running.trial.share(),
            trial: running.number,
        })
    }

    /// The split of a tag on trial between two served versions.
    pub fn split<S: Servable>(
        &self,
        key: &TagKey,
        arms: &Arms,
        live: Arc<S>,
        canary: Arc<S>,
    ) -> Option<Split<S>> {
        let running = self.set.running.get(key)?;
        Some(Split {
            live,
            canary,
            share: arms.share,
            salt: running.salt,
            outcomes: Arc::clone(&running.outcomes),
            calls: Arc::clone(&running.calls),
            shadow: running.trial.settings().shadow,
            aside: self.aside.clone(),
        })
    }
}

/// The failure of a canary that ended the engine again and again.
fn quarantine(key: &TagKey, canary: Digest, cx: &dyn Context) -> Option<Failure> {
    match cx.answer(&ModelKey { name: key.name.clone(), digest: canary }) {
        Answer::Refused(failure) if failure.reason == Reason::ModelQuarantined => Some(failure),
        _ => None,
    }
}

/// The route of a version that is up.
fn ready(cx: &dyn Context, key: &ModelKey) -> Option<u64> {
    match cx.answer(key) {
        Answer::Ready(_, route) => Some(route),
        _ => None,
    }
}
