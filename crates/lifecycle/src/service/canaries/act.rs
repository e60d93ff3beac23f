//! What is done about canaries: rollback, promotion, the log of both.

use std::{sync::Arc, time::SystemTime};

use outrigger_canary::{Cause, Conclusion, Mode};
use outrigger_core::{
    Digest, Failure, Moment, Reason,
    fleet::{Event, TagKey},
    tags,
};

use super::{Decided, Pair, Promotion, Running};
use crate::{
    AUDIT,
    canaries::{Act, By, CanaryDecision, CanaryOutcome},
    jobs::{Done, promote},
    metrics,
    service::Service,
    world::defect,
};

/// Decisions that are remembered.
const DECISIONS: usize = 500;

impl Service {
    /// Does what the judge says.
    pub(super) fn conclude(&mut self, key: &TagKey, conclusion: Conclusion) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        let by = match conclusion {
            Conclusion::Promote(cause) => By::judge(reason(running, cause)),
            Conclusion::Rollback(cause) => {
                let by = By::judge(reason(running, cause));
                match cause {
                    Cause::Proved => self.roll_back(key, by),
                    // Others may have the traffic that is missing here.
                    Cause::Starved => drop(self.give_up(key, by)),
                }
                return;
            }
        };
        if running.trial.settings().mode == Mode::Recommend {
            if matches!(running.promotion, Promotion::Recommended) {
                return;
            }
            running.promotion = Promotion::Recommended;
            let decision = decision(key, running, CanaryOutcome::Recommended, by);
            self.decided(decision);
        } else {
            self.promote(key, by);
        }
    }

    /// Decides by hand.
    ///
    /// # Errors
    /// CANARY_NOT_FOUND.
    pub(in crate::service) fn decide(
        &mut self,
        key: &TagKey,
        act: Act,
        by: By,
    ) -> Result<(), Failure> {
        if !self.canaries.trials.contains_key(key) {
            let message = format!("no canary of {}:{} is on trial", key.name, key.tag);
            return Err(Failure::new(Reason::CanaryNotFound, message));
        }
        match act {
            Act::Promote => self.promote(key, by),
            Act::Abort => self.roll_back(key, by),
        }
        self.show_canaries(self.clock.now());
        Ok(())
    }

    /// Takes the canary's traffic away here, and has others do so.
    fn roll_back(&mut self, key: &TagKey, by: By) {
        if let Some((running, decision)) = self.give_up(key, by) {
            self.publish_verdict(&running, &decision);
        }
    }

    /// Takes the canary's traffic away, for as long as its tag stays where it is.
    pub(super) fn give_up(&mut self, key: &TagKey, by: By) -> Option<(Running, CanaryDecision)> {
        let running = self.end(key)?;
        let decision = decision(key, &running, CanaryOutcome::RolledBack, by);
        self.decided(decision.clone());
        self.reject(running.canary_tag.clone(), running.pair.canary);
        Some((running, decision))
    }

    /// Ends a trial: its tag is not split any more.
    fn end(&mut self, key: &TagKey) -> Option<Running> {
        let running = self.canaries.trials.remove(key)?;
        self.canaries.changed.insert(key.name.clone());
        metrics::share(&key.name, None);
        metrics::sizes_fit(&key.name, true);
        metrics::time_used(&key.name, 0.0, false);
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
        self.decided(CanaryDecision {
            at: SystemTime::now(),
            model: key.name.clone(),
            tag: key.tag.clone(),
            live: Some(pair.live),
            canary: pair.canary,
            outcome: CanaryOutcome::Refused,
            by: "judge".to_owned(),
            reason: failure.to_string(),
            verdict: None,
        });
        self.reject(canary_tag.clone(), pair.canary);
    }

    /// Has the canary become live, where this trial's mode says.
    pub(super) fn promote(&mut self, key: &TagKey, by: By) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        if matches!(running.promotion, Promotion::Running(_)) {
            return;
        }
        if running.trial.settings().mode == Mode::Local {
            let canary = running.pair.canary;
            running.promotion = Promotion::Told(by);
            return self.apply(Event::Tag(key.clone(), tags::Event::Promote(canary)));
        }
        let Pair { live, canary } = running.pair;
        running.promotion = Promotion::Running(by);
        let world = Arc::clone(&self.world);
        let done = {
            let key = key.clone();
            move |result| Done::Promoted { key, canary, result }
        };
        let key = key.clone();
        self.jobs.start(done.clone()(Err(defect())), async move {
            done(promote::promote(&world, &key, live, canary).await)
        });
    }

    /// What became of telling the registry.
    pub(in crate::service) fn told(
        &mut self,
        key: &TagKey,
        canary: Digest,
        result: Result<promote::Told, Failure>,
    ) {
        let now = self.clock.now();
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        let Promotion::Running(by) = &running.promotion else { return };
        if running.pair.canary != canary {
            return;
        }
        let by = by.clone();
        match result {
            Ok(told) => {
                if let promote::Told::Elsewhere(digest) = told {
                    tracing::warn!(
                        model.name = %key.name, model.tag = %key.tag,
                        model.digest = %canary, registry = %digest,
                        "the canary is not promoted: the tag has moved in the meantime"
                    );
                }
                running.promotion = Promotion::Told(by);
                self.apply(Event::Tag(key.clone(), tags::Event::Retry));
            }
            Err(failure) => {
                tracing::warn!(
                    model.name = %key.name, model.tag = %key.tag, model.digest = %canary,
                    reason = %failure.reason, error = %failure.message,
                    "the canary cannot be promoted in the registry"
                );
                let failures = running.failures + 1;
                let delay = self.fleet.policy().backoff.delay(failures, rand::random(), None);
                running.failures = failures;
                running.promotion = Promotion::Failed { by, failure, retry_at: now + delay };
            }
        }
        self.show_canaries(now);
    }

    /// Tells the registry again, when that is due.
    pub(super) fn retry_promotion(&mut self, key: &TagKey, now: Moment) {
        let Some(running) = self.canaries.trials.get(key) else { return };
        if let Promotion::Failed { by, retry_at, .. } = &running.promotion
            && *retry_at <= now
        {
            self.promote(key, by.clone());
        }
    }

    /// The canary answers for the tag: the end of a good trial. Its tag stays where it
    /// is; it is not tried again when something else answers.
    pub(super) fn note_promoted(&mut self, key: &TagKey) {
        let Some(running) = self.end(key) else { return };
        let by = match running.decided() {
            Some(Decided::Promoted(by)) => by,
            Some(Decided::Recommended) | None => {
                By { who: "registry".to_owned(), why: "the tag was moved to the canary".to_owned() }
            }
        };
        let decision = decision(key, &running, CanaryOutcome::Promoted, by);
        self.decided(decision.clone());
        self.reject(running.canary_tag.clone(), running.pair.canary);
        self.publish_verdict(&running, &decision);
    }

    /// What has been live is no canary of what came after it.
    pub(super) fn retire(&mut self, key: &TagKey, canary_tag: TagKey, canary: Digest) {
        self.supersede(key, "it has been live before");
        self.reject(canary_tag, canary);
    }

    /// What was compared is not what there is any more.
    pub(super) fn supersede(&mut self, key: &TagKey, why: &str) {
        let Some(running) = self.end(key) else { return };
        let by = By { who: "registry".to_owned(), why: why.to_owned() };
        self.decided(decision(key, &running, CanaryOutcome::Superseded, by));
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

fn reason(running: &Running, cause: Cause) -> String {
    let verdict = running.trial.verdict().map(ToString::to_string).unwrap_or_default();
    match cause {
        Cause::Proved => verdict,
        Cause::Starved => format!("it will not be decided in time; {verdict}"),
    }
}

fn decision(key: &TagKey, running: &Running, outcome: CanaryOutcome, by: By) -> CanaryDecision {
    CanaryDecision {
        at: SystemTime::now(),
        model: key.name.clone(),
        tag: key.tag.clone(),
        live: Some(running.pair.live),
        canary: running.pair.canary,
        outcome,
        by: by.who,
        reason: by.why,
        verdict: running.verdict(),
    }
}
