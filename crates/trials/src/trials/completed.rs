//! Results from the registry: ended look-ups of tags, and results of jobs.

use outrigger_canary::Mode;
use outrigger_core::{
    Digest, Failure, Moment,
    machines::{TagKey, of_name},
};

use super::Trials;
use crate::{
    context::Context,
    effect::Effect,
    jobs::{Completed, Completion, promote::Moved, verdicts::Verdict},
    promotion::{Moving, Promotion, promoted, refuse},
    views::{By, CanaryOutcome},
};

impl Trials {
    /// Handles the end of a look-up of a tag, which may be a canary tag or a live tag.
    pub fn looked_up(&mut self, key: &TagKey, cx: &dyn Context) {
        self.canary_looked_up(key, cx);
        self.live_looked_up(key, cx);
    }

    /// Handles the look-up of a canary tag: also asks for verdicts, and checks whether the tag is
    /// gone if it was not found.
    fn canary_looked_up(&mut self, canary_tag: &TagKey, cx: &dyn Context) {
        self.set.check_removal(canary_tag, cx);
        let running = of_name(&self.set.running, &canary_tag.name);
        let running = running.filter(|(_, running)| running.canary_tag == *canary_tag);
        let keys: Vec<_> = running.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.set.look_for_verdict(key));
    }

    /// Handles the look-up of a live tag: if the tag does not name the canary it was moved to, it
    /// was moved again elsewhere.
    fn live_looked_up(&mut self, key: &TagKey, cx: &dyn Context) {
        let Some(running) = self.set.running.get_mut(key) else { return };
        let Some(tag) = cx.tag(key).filter(|tag| tag.trouble.is_none()) else { return };
        let moved_on = tag.registry != Some(running.pair.canary);
        match &mut running.promotion {
            // In this mode the registry's tag is not moved.
            _ if running.trial.settings().mode == Mode::Local => {}
            // This look-up may have begun before the tag was moved.
            Promotion::Moved { missed: missed @ false, .. } if moved_on => {
                *missed = true;
                self.set.effects.push(Effect::LookUp(key.clone()));
            }
            Promotion::Moved { missed: true, .. } if moved_on => {
                tracing::warn!(
                    model.name = %key.name, model.tag = %key.tag,
                    model.digest = %running.pair.canary,
                    "the canary was promoted, and the tag moved again before this process saw it"
                );
                self.set.end_promoted(key);
            }
            _ => {}
        }
    }

    /// Handles the result of a job. Must be followed by [`Self::show`].
    pub fn completed(&mut self, completion: Completion, cx: &dyn Context) {
        match completion.0 {
            Completed::Nothing => {}
            Completed::Moved { key, number, result } => self.tag_moved(&key, number, result, cx),
            Completed::Looked { key, number, verdict } => self.verdict_found(&key, number, verdict),
            Completed::Checked { canary_tag, found_at, result } => {
                self.removal_checked(&canary_tag, found_at, result, cx);
            }
        }
    }

    /// Handles the result of a promotion in the registry, for the trial with that number.
    fn tag_moved(
        &mut self,
        key: &TagKey,
        number: u64,
        result: Result<Moved, Failure>,
        cx: &dyn Context,
    ) {
        let Some(running) = self.set.numbered(key, number) else { return };
        let promotion = std::mem::replace(&mut running.promotion, Promotion::Undecided);
        let Promotion::Moving(Moving { by, push, unsure, aborts }) = promotion else {
            running.promotion = promotion;
            return;
        };
        let delay = |failures| cx.retry_delay(failures);
        match result {
            Ok(Moved::Promoted) => {
                running.promotion = Promotion::moved(by);
                refuse(aborts, &promoted(key));
                self.set.effects.push(Effect::LookUp(key.clone()));
            }
            Ok(Moved::Elsewhere(digest)) => {
                tracing::warn!(
                    model.name = %key.name, model.tag = %key.tag,
                    model.digest = %running.pair.canary, registry = %digest,
                    "the canary is not promoted: the tag has moved in the meantime"
                );
                running.promotion = Promotion::Overtaken(by);
                self.set.carry_out_aborts(key, aborts);
                self.set.effects.push(Effect::LookUp(key.clone()));
            }
            Ok(Moved::Failed(failure)) => {
                running.move_failed((by, failure), false, cx.now(), delay);
                self.set.carry_out_aborts(key, aborts);
            }
            Ok(Moved::Cancelled) => self.set.carry_out_aborts(key, aborts),
            Err(failure) => {
                refuse(aborts, &failure);
                let unsure = unsure || push.has_begun();
                running.move_failed((by, failure), unsure, cx.now(), delay);
            }
        }
    }

    /// Handles another control plane's decision about the trial with that number.
    fn verdict_found(&mut self, key: &TagKey, number: u64, verdict: Option<Verdict>) {
        let Some(running) = self.set.numbered(key, number) else { return };
        running.looking = false;
        let Some(verdict) = verdict else { return };
        let has_begun = running.promotion.has_begun();
        if verdict.outcome == CanaryOutcome::RolledBack {
            // If the promotion cannot be retracted, the verdict is found again after it has failed.
            if running.promotion.retract() {
                let why = format!("rolled back elsewhere by {}: {}", verdict.by, verdict.reason);
                self.set.give_up(key, By::registry(why));
            }
        } else if !has_begun {
            self.promoted_elsewhere(key, verdict.live);
        }
    }

    /// Handles a promotion of the canary by another control plane, against `live`.
    fn promoted_elsewhere(&mut self, key: &TagKey, live: Digest) {
        let Some(running) = self.set.running.get(key) else { return };
        if live == running.pair.live && running.trial.share().is_some() {
            // The canary was on trial here: the tag moves, if it has not moved already.
            self.set.effects.push(Effect::LookUp(key.clone()));
        } else {
            let (canary_tag, canary) = (running.canary_tag.clone(), running.pair.canary);
            self.set.retire(key, canary_tag, canary);
        }
    }

    /// Handles the result of checking a canary's tag that was last found at `found_at`: the digest
    /// of the live tag, once it is certain that the canary's tag is gone.
    fn removal_checked(
        &mut self,
        canary_tag: &TagKey,
        found_at: Option<Moment>,
        result: Result<Option<Digest>, Failure>,
        cx: &dyn Context,
    ) {
        // The result is obsolete if the tag was found again meanwhile.
        let Some(tag) = cx.tag(canary_tag).filter(|it| it.checked_at == found_at) else { return };
        let (Some(canary), Some(live)) = (tag.canary, cx.live_tag(canary_tag)) else { return };
        match result {
            Ok(named) if named == Some(canary) && self.set.is_tried(&live, canary) => {
                // The canary was promoted and its tag then removed: the trial ends with the live
                // tag's move.
                self.set.effects.push(Effect::LookUp(live));
            }
            Ok(_) => self.set.end_removed(canary_tag, &live, canary),
            Err(failure) => tracing::warn!(
                model.name = %live.name, model.tag = %canary_tag.tag,
                reason = %failure.reason, error = %failure.message,
                "the canary's tag is not found, but may still exist: its trial continues"
            ),
        }
    }
}
