//! What is done about canaries: rollback, promotion, the log of both.

use std::time::SystemTime;

use outrigger_canary::{Cause, Conclusion, Mode};
use outrigger_core::{
    Digest, Failure, Moment, Reason,
    fleet::{Event, TagKey},
    tags,
};

use super::{
    Pair, Running,
    promotion::{Promotion, promoted},
};
use crate::{
    AUDIT,
    canaries::{Act, By, CanaryDecision, CanaryOutcome, VerdictView},
    handle::Reply,
    metrics,
    service::Service,
};

/// Decisions that are remembered.
const DECISIONS: usize = 500;

impl Service {
    /// Does what the judge says, as far as nobody has decided otherwise. Harm that is
    /// proved is told again and again: also after a promotion that comes to nothing.
    pub(super) fn conclude(&mut self, key: &TagKey, conclusion: Conclusion) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        let (Conclusion::Promote(cause) | Conclusion::Rollback(cause)) = conclusion;
        let by = By::judge(reason(running, cause));
        match conclusion {
            Conclusion::Rollback(Cause::Proved) if running.promotion.retract() => {
                self.roll_back(key, by);
            }
            _ if running.promotion.by().is_some() => {}
            // Others may have the traffic that is missing here.
            Conclusion::Rollback(_) => drop(self.give_up(key, by)),
            Conclusion::Promote(_) if running.trial.settings().mode == Mode::Recommend => {
                self.recommend(key, by);
            }
            Conclusion::Promote(_) => self.promote(key, by),
        }
    }

    fn recommend(&mut self, key: &TagKey, by: By) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        if matches!(running.promotion, Promotion::Recommended) {
            return;
        }
        running.promotion = Promotion::Recommended;
        let decision =
            decision(key, running.pair, CanaryOutcome::Recommended, by, running.verdict());
        self.decided(decision);
    }

    /// Decides by hand. Replies CANARY_NOT_FOUND without a trial, and when it is too
    /// late for that CANARY_PROMOTED; where only the registry knows, later.
    pub(in crate::service) fn decide(&mut self, key: &TagKey, act: Act, by: By, done: Reply) {
        if act == Act::Abort {
            self.wake(key);
        }
        if !self.canaries.trials.contains_key(key) {
            // Whoever asked may have gone.
            done.send(Err(not_found(key))).ok();
            return;
        }
        match act {
            Act::Promote => {
                self.promote(key, by);
                done.send(Ok(())).ok();
            }
            Act::Abort => self.abort(key, by, done),
        }
        self.show_canaries(self.clock.now());
    }

    /// Has a trial that waits for requests go on, so that it can be ended.
    fn wake(&mut self, key: &TagKey) {
        let Some(pair) = self.canaries.unfinished.get(key).map(|it| it.pair) else { return };
        if let Some(canary_tag) = self.fleet.canary_tag(key, pair.canary) {
            self.begin(key, canary_tag, pair, self.clock.now());
        }
    }

    /// Takes the canary's traffic away here, and has others do so.
    pub(super) fn roll_back(&mut self, key: &TagKey, by: By) {
        if let Some((running, decision)) = self.give_up(key, by) {
            self.publish_verdict(&running, &decision);
        }
    }

    /// Takes the canary's traffic away, for as long as its tag stays where it is.
    pub(super) fn give_up(&mut self, key: &TagKey, by: By) -> Option<(Running, CanaryDecision)> {
        let running = self.end(key)?;
        let decision =
            decision(key, running.pair, CanaryOutcome::RolledBack, by, running.verdict());
        self.decided(decision.clone());
        self.reject(running.canary_tag.clone(), running.pair.canary);
        Some((running, decision))
    }

    /// Ends a trial: its tag is not split any more, and nothing is pushed for it.
    pub(super) fn end(&mut self, key: &TagKey) -> Option<Running> {
        let mut running = self.canaries.trials.remove(key)?;
        running.promotion.retract();
        running.promotion.refuse_aborts(&not_found(key));
        self.canaries.changed.insert(key.name.clone());
        metrics::share(key, None);
        metrics::sizes_fit(key, true);
        metrics::time_used(key, 0.0, false);
        Some(running)
    }

    fn reject(&mut self, canary_tag: TagKey, canary: Digest) {
        self.apply(Event::Tag(canary_tag, tags::Event::Reject(canary)));
    }

    /// Does not try what cannot say how.
    pub(super) fn refuse(
        &mut self,
        key: &TagKey,
        canary_tag: &TagKey,
        pair: Pair,
        failure: &Failure,
    ) {
        let by = By::judge(failure.to_string());
        self.decided(decision(key, pair, CanaryOutcome::Refused, by, None));
        self.reject(canary_tag.clone(), pair.canary);
    }

    /// The canary answers for the tag: the end of a good trial. Its tag stays where it
    /// is; it is not tried again when something else answers.
    pub(super) fn note_promoted(&mut self, key: &TagKey) {
        if let Some(running) = self.canaries.trials.get_mut(key) {
            running.promotion.refuse_aborts(&promoted(key));
        }
        let Some(running) = self.end(key) else { return };
        let by = running.promotion.by().cloned().unwrap_or_else(|| By {
            who: "registry".to_owned(),
            why: "the tag was moved to the canary".to_owned(),
        });
        let decision = decision(key, running.pair, CanaryOutcome::Promoted, by, running.verdict());
        self.decided(decision.clone());
        self.reject(running.canary_tag.clone(), running.pair.canary);
        self.publish_verdict(&running, &decision);
    }

    /// What the canary's tag names answers already, which a trial that waited to go on
    /// has ended with.
    pub(super) fn note_live(
        &mut self,
        key: &TagKey,
        canary_tag: TagKey,
        canary: Digest,
        now: Moment,
    ) {
        let waiting = self.canaries.unfinished.get(key).map(|it| it.pair);
        match waiting.filter(|pair| pair.canary == canary) {
            Some(pair) => {
                self.begin(key, canary_tag, pair, now);
                self.note_promoted(key);
            }
            None => self.retire(key, canary_tag, canary),
        }
    }

    /// What has been live is no canary of what came after it.
    pub(super) fn retire(&mut self, key: &TagKey, canary_tag: TagKey, canary: Digest) {
        self.supersede(key, "it has been live before");
        self.reject(canary_tag, canary);
    }

    /// What was compared is not what there is any more.
    pub(super) fn supersede(&mut self, key: &TagKey, why: &str) {
        let Some(running) = self.end(key) else { return };
        self.superseded(key, running.pair, why, running.verdict());
    }

    /// The same for a trial that waited to go on.
    pub(super) fn supersede_waiting(&mut self, key: &TagKey, why: &str) {
        let Some(waiting) = self.canaries.unfinished.remove(key) else { return };
        self.superseded(key, waiting.pair, why, None);
    }

    fn superseded(&mut self, key: &TagKey, pair: Pair, why: &str, verdict: Option<VerdictView>) {
        let by = By { who: "registry".to_owned(), why: why.to_owned() };
        self.decided(decision(key, pair, CanaryOutcome::Superseded, by, verdict));
    }

    /// Says once what was decided, and remembers it.
    fn decided(&mut self, decision: CanaryDecision) {
        metrics::decided(&decision);
        // Whoever decided, it changes what callers get.
        tracing::info!(
            target: AUDIT,
            outcome = decision.outcome.as_str(), by = %decision.by, reason = %decision.reason,
            model.name = %decision.model, model.tag = %decision.tag,
            model.digest = %decision.canary,
            "a canary is decided"
        );
        self.canaries.decisions.push_front(decision);
        self.canaries.decisions.truncate(DECISIONS);
    }
}

fn not_found(key: &TagKey) -> Failure {
    let message = format!("no canary of {}:{} is on trial", key.name, key.tag);
    Failure::new(Reason::CanaryNotFound, message)
}

fn reason(running: &Running, cause: Cause) -> String {
    let verdict = running.trial.verdict().map(ToString::to_string).unwrap_or_default();
    match cause {
        Cause::Proved => verdict,
        Cause::Starved => format!("it will not be decided in time; {verdict}"),
    }
}

fn decision(
    key: &TagKey,
    pair: Pair,
    outcome: CanaryOutcome,
    by: By,
    verdict: Option<VerdictView>,
) -> CanaryDecision {
    CanaryDecision {
        at: SystemTime::now(),
        model: key.name.clone(),
        tag: key.tag.clone(),
        live: Some(pair.live),
        canary: pair.canary,
        outcome,
        by: by.who,
        reason: by.why,
        verdict,
    }
}
