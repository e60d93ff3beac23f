//! All trials, with their beginnings and ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use outrigger_canary::{Mode, Salt, Share};
use outrigger_core::{Digest, Failure, ModelName, Reason, machines::TagKey};

use crate::{
    config::CanaryDefaults,
    context::Context,
    decisions::{self, Decisions, decision},
    effect::Effect,
    jobs::{Job, Kind, removal::is_not_found, verdicts::Verdict},
    metrics,
    pair::Pair,
    promotion::{Promotion, Reply, promoted, refuse},
    record::{Decided, Paused},
    reports::Reports,
    running::{Running, Start},
    settings::Packages,
    views::{By, CanaryDecision, CanaryOutcome, VerdictView},
};

const REMOVED: &str = "the canary's tag was removed";

/// All trials, the decisions about them, and the requested effects.
#[derive(Default)]
pub(crate) struct TrialSet {
    pub(crate) config: CanaryDefaults,
    salt: Salt,
    /// The running trials by live tag.
    pub(crate) running: BTreeMap<TagKey, Running>,
    /// Paused trials: those of an earlier process, and those of tags without requests.
    pub(crate) paused: BTreeMap<TagKey, Paused>,
    pub(crate) decisions: Decisions,
    /// Models whose routes or views may have changed.
    pub(crate) changed: BTreeSet<ModelName>,
    /// Effects to carry out, in this order.
    pub(crate) effects: Vec<Effect>,
    /// Log lines and metrics for the time when the routes are in force.
    pub(crate) reports: Reports,
    /// The number of the last trial.
    last: u64,
}

impl TrialSet {
    pub(crate) fn new(config: CanaryDefaults, salt: Salt) -> Self {
        Self { config, salt, ..Self::default() }
    }

    /// Starts a trial, or continues a paused one.
    pub(crate) fn begin(&mut self, key: &TagKey, canary_tag: TagKey, pair: Pair, cx: &dyn Context) {
        let packages = Packages::of(key, pair, cx);
        let settings = match packages.settings(&self.config) {
            Ok(settings) => Arc::new(settings),
            Err(failure) => return self.refuse(key, canary_tag, pair, &failure),
        };
        let paused = self.paused.remove(key).filter(|it| it.pair == pair);
        let is_resumed = paused.is_some();
        let paused = paused.unwrap_or_else(|| Paused::new(pair));
        self.last += 1;
        let (number, profiles) = (self.last, packages.into_profiles());
        let Pair { live, canary } = pair;
        let salt = self.salt.of_trial(&format!("{}:{} {live} {canary}", key.name, key.tag));
        let start = Start { number, key: key.clone(), canary_tag, settings, salt, profiles };
        let decided = paused.decided.clone();
        let mut running = Running::new(start, paused, cx.now());
        self.reports.add({
            let key = key.clone();
            let share = running.trial.share();
            let held_back = running.trial.is_held_back();
            move || {
                metrics::held_back(&key, held_back);
                report_begin(&key, share, pair, is_resumed);
            }
        });
        let effect = match decided {
            Some(Decided::Promoted(by)) => Some(running.move_tag(by, true)),
            Some(Decided::Recommended) | None => running.look_for_verdict(),
        };
        self.effects.extend(effect);
        self.running.insert(key.clone(), running);
        self.changed.insert(key.name.clone());
    }

    /// Pauses a trial. It continues with the next request for its tag.
    pub(crate) fn pause(&mut self, key: &TagKey, cx: &dyn Context) {
        if let Some(running) = self.running.get_mut(key) {
            running.collect(cx.now());
        }
        let Some(running) = self.end(key) else { return };
        self.reports.add({
            let key = key.clone();
            let canary = running.pair.canary;
            move || {
                tracing::info!(
                    model.name = %key.name, model.tag = %key.tag, model.digest = %canary,
                    "the canary's trial is paused: its tag has no requests, or canaries are off"
                );
            }
        });
        self.paused.insert(key.clone(), running.paused(cx.now()));
    }

    /// Continues a paused trial, so that it can be ended.
    pub(crate) fn resume(&mut self, key: &TagKey, cx: &dyn Context) {
        let Some(pair) = self.paused.get(key).map(|it| it.pair) else { return };
        if let Some(canary_tag) = cx.canary_tag(key, pair.canary) {
            self.begin(key, canary_tag, pair, cx);
        }
    }

    /// Ends a trial: its tag is not split any more, and its push is cancelled if it has not begun.
    fn end(&mut self, key: &TagKey) -> Option<Running> {
        let mut running = self.running.remove(key)?;
        running.promotion.retract();
        running.promotion.refuse_aborts(&not_found(key));
        self.changed.insert(key.name.clone());
        let key = key.clone();
        self.reports.add(move || metrics::trial_ends(&key));
        Some(running)
    }

    /// Stores a decision, to be reported when its routes are in force.
    fn record(&mut self, decision: CanaryDecision) {
        let reported = decision.clone();
        self.reports.add(move || decisions::report(&reported));
        self.decisions.add(decision);
    }

    /// Recommends the canary's promotion to people, once per trial.
    pub(crate) fn recommend(&mut self, key: &TagKey, by: By) {
        let Some(running) = self.running.get_mut(key) else { return };
        if matches!(running.promotion, Promotion::Recommended) {
            return;
        }
        running.promotion = Promotion::Recommended;
        let (pair, verdict) = (running.pair, running.verdict());
        self.record(decision(key, pair, CanaryOutcome::Recommended, by, verdict));
    }

    /// Makes the canary live in the place that the trial's mode names.
    pub(crate) fn promote(&mut self, key: &TagKey, by: By) {
        let Some(running) = self.running.get_mut(key) else { return };
        self.effects.extend(running.promote(by));
    }

    /// Rolls the canary back by a person's decision: at once, unless only the registry can tell
    /// whether it is live.
    pub(crate) fn abort(&mut self, key: &TagKey, by: By, done: Reply) {
        let Some(running) = self.running.get_mut(key) else { return };
        if let Promotion::Failed { by, unsure: true, .. } = &running.promotion {
            let by = by.clone();
            self.effects.push(running.move_tag(by, true));
        }
        match &mut running.promotion {
            Promotion::Moved { .. } => refuse(vec![(by, done)], &promoted(key)),
            Promotion::Moving(moving) if !moving.push.cancel() || moving.unsure => {
                moving.aborts.push((by, done));
            }
            _ => self.carry_out_aborts(key, vec![(by, done)]),
        }
    }

    pub(crate) fn carry_out_aborts(&mut self, key: &TagKey, aborts: Vec<(By, Reply)>) {
        for (by, done) in aborts {
            self.roll_back(key, by);
            // The caller may have gone.
            done.send(Ok(())).ok();
        }
    }

    /// Withdraws the canary's traffic, here and in other control planes.
    pub(crate) fn roll_back(&mut self, key: &TagKey, by: By) {
        if let Some((running, decision)) = self.give_up(key, by) {
            self.publish_verdict(&running, &decision);
        }
    }

    /// Withdraws the canary's traffic here, until its tag moves.
    pub(crate) fn give_up(&mut self, key: &TagKey, by: By) -> Option<(Running, CanaryDecision)> {
        let running = self.end(key)?;
        let decision =
            decision(key, running.pair, CanaryOutcome::RolledBack, by, running.verdict());
        self.record(decision.clone());
        self.reject(running.canary_tag.clone(), running.pair.canary);
        Some((running, decision))
    }

    fn reject(&mut self, canary_tag: TagKey, canary: Digest) {
        self.effects.push(Effect::Reject(canary_tag, canary));
    }

    /// Refuses a canary whose settings are invalid, or which ended its engine before its trial.
    pub(crate) fn refuse(
        &mut self,
        key: &TagKey,
        canary_tag: TagKey,
        pair: Pair,
        failure: &Failure,
    ) {
        let by = By::judge(failure.to_string());
        self.record(decision(key, pair, CanaryOutcome::Refused, by, None));
        self.reject(canary_tag, pair.canary);
    }

    /// Ends a trial with a promotion: the canary answers for the tag. Its own tag stays in place;
    /// the canary is not tried again when another version becomes live.
    pub(crate) fn end_promoted(&mut self, key: &TagKey) {
        if let Some(running) = self.running.get_mut(key) {
            running.promotion.refuse_aborts(&promoted(key));
        }
        let Some(running) = self.end(key) else { return };
        let by = running.promotion.by().cloned();
        let by = by.unwrap_or_else(|| By::registry("the tag was moved to the canary"));
        let decision = decision(key, running.pair, CanaryOutcome::Promoted, by, running.verdict());
        self.record(decision.clone());
        self.reject(running.canary_tag.clone(), running.pair.canary);
        self.publish_verdict(&running, &decision);
    }

    /// Handles a canary tag that names the live version: a paused trial of it ends as promoted;
    /// otherwise nothing is to be tried.
    pub(crate) fn canary_is_live(
        &mut self,
        key: &TagKey,
        canary_tag: TagKey,
        canary: Digest,
        cx: &dyn Context,
    ) {
        let paused = self.paused.get(key).map(|it| it.pair);
        match paused.filter(|pair| pair.canary == canary) {
            Some(pair) => {
                self.begin(key, canary_tag, pair, cx);
                self.end_promoted(key);
            }
            None => self.retire(key, canary_tag, canary),
        }
    }

    /// Ends the trial of a version that has been live: it cannot be the canary of its successor.
    pub(crate) fn retire(&mut self, key: &TagKey, canary_tag: TagKey, canary: Digest) {
        self.supersede(key, "it has been live before");
        self.reject(canary_tag, canary);
    }

    /// Ends a trial whose tags now name other versions.
    pub(crate) fn supersede(&mut self, key: &TagKey, why: &str) {
        let Some(running) = self.end(key) else { return };
        self.add_superseded(key, running.pair, why, running.verdict());
    }

    /// Ends a paused trial whose tags now name other versions.
    fn supersede_paused(&mut self, key: &TagKey, why: &str) {
        let Some(paused) = self.paused.remove(key) else { return };
        self.add_superseded(key, paused.pair, why, None);
    }

    fn add_superseded(
        &mut self,
        key: &TagKey,
        pair: Pair,
        why: &str,
        verdict: Option<VerdictView>,
    ) {
        let by = By::registry(why);
        self.record(decision(key, pair, CanaryOutcome::Superseded, by, verdict));
    }

    /// Shares a decision with other control planes, if the trial's mode uses the registry.
    fn publish_verdict(&mut self, running: &Running, decision: &CanaryDecision) {
        if running.mode() != Mode::Registry {
            return;
        }
        let verdict = Verdict {
            tag: decision.tag.clone(),
            live: running.pair.live,
            canary: running.pair.canary,
            outcome: decision.outcome,
            by: decision.by.clone(),
            reason: decision.reason.clone(),
        };
        let model = decision.model.clone();
        self.effects.push(Effect::Run(Job::new(Kind::PublishVerdict { model, verdict })));
    }

    /// Asks the registry for the decisions of other control planes about a trial.
    pub(crate) fn look_for_verdict(&mut self, key: &TagKey) {
        let Some(running) = self.running.get_mut(key) else { return };
        self.effects.extend(running.look_for_verdict());
    }

    /// Checks whether a tag is gone that named a canary and was not found.
    pub(crate) fn check_removal(&mut self, canary_tag: &TagKey, cx: &dyn Context) {
        let Some(tag) = cx.tag(canary_tag).filter(|tag| tag.canary.is_some()) else { return };
        if !tag.trouble.is_some_and(is_not_found) {
            return;
        }
        let Some(live) = cx.live_tag(canary_tag) else { return };
        let (canary_tag, found_at) = (canary_tag.clone(), tag.checked_at);
        let check = Job::new(Kind::CheckRemoval { canary_tag, live, found_at });
        self.effects.push(Effect::Run(check));
    }

    /// Ends the trial of a canary whose tag is gone.
    pub(crate) fn end_removed(&mut self, canary_tag: &TagKey, live: &TagKey, canary: Digest) {
        let running = self.running.get(live).filter(|it| it.canary_tag == *canary_tag);
        match running.map(|running| running.promotion.retract()) {
            // The promotion is under way or done, and the next look-up shows its result.
            Some(false) => return,
            Some(true) => self.supersede(live, REMOVED),
            None if self.is_paused(live, canary) => self.supersede_paused(live, REMOVED),
            None => {}
        }
        self.effects.push(Effect::Removed(canary_tag.clone()));
    }

    /// The trial with that number, if it has not ended.
    pub(crate) fn numbered(&mut self, key: &TagKey, number: u64) -> Option<&mut Running> {
        self.running.get_mut(key).filter(|it| it.number == number)
    }

    /// True if a trial of that canary is running or paused.
    pub(crate) fn is_tried(&self, live: &TagKey, canary: Digest) -> bool {
        let running = self.running.get(live);
        running.is_some_and(|it| it.pair.canary == canary) || self.is_paused(live, canary)
    }

    fn is_paused(&self, live: &TagKey, canary: Digest) -> bool {
        self.paused.get(live).is_some_and(|it| it.pair.canary == canary)
    }
}

/// Logs and counts the beginning of a trial.
fn report_begin(key: &TagKey, share: Option<Share>, pair: Pair, is_resumed: bool) {
    metrics::trial_begins(key, share);
    tracing::info!(
        model.name = %key.name, model.tag = %key.tag, model.digest = %pair.canary,
        live = %pair.live, resumed = is_resumed,
        "a canary is on trial"
    );
}

/// The failure of a decision about a canary that is not on trial.
pub(crate) fn not_found(key: &TagKey) -> Failure {
    let message = format!("no canary of {}:{} is on trial", key.name, key.tag);
    Failure::new(Reason::CanaryNotFound, message)
}
