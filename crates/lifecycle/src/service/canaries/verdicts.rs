//! Decisions that other control planes are told of, and that they tell of.

use std::sync::Arc;

use outrigger_canary::Mode;
use outrigger_core::{
    Digest,
    fleet::{Event, TagKey},
    tags,
};

use super::{Pair, Promotion, Running};
use crate::{
    canaries::{By, CanaryDecision, CanaryOutcome},
    jobs::{
        Done,
        verdicts::{self, Verdict},
    },
    service::Service,
};

impl Service {
    /// Tells others of a decision, where the registry is what trials go by.
    pub(super) fn publish_verdict(&mut self, running: &Running, decision: &CanaryDecision) {
        if running.trial.settings().mode != Mode::Registry {
            return;
        }
        let (world, model) = (Arc::clone(&self.world), decision.model.clone());
        let verdict = Verdict {
            tag: decision.tag.clone(),
            live: running.pair.live,
            canary: running.pair.canary,
            outcome: decision.outcome,
            by: decision.by.clone(),
            reason: decision.reason.clone(),
        };
        self.jobs.start(Done::Nothing, async move {
            verdicts::publish(&world, &model, &verdict).await;
            Done::Nothing
        });
    }

    /// `canary_tag` was looked up: time to ask for verdicts as well, and whether the tag
    /// is gone if it was not found.
    pub(super) fn canary_polled(&mut self, canary_tag: &TagKey) {
        self.look_for_removal(canary_tag);
        let trials = self.canaries.trials.iter();
        let theirs = trials.filter(|(_, running)| running.canary_tag == *canary_tag);
        let keys: Vec<_> = theirs.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.look_for_verdict(key));
    }

    /// Asks what others have decided about what is tried here.
    pub(super) fn look_for_verdict(&mut self, key: &TagKey) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        if running.looking || running.trial.settings().mode != Mode::Registry {
            return;
        }
        running.looking = true;
        let (world, key) = (Arc::clone(&self.world), key.clone());
        let (number, Pair { live, canary }) = (running.number, running.pair);
        let if_panicked = Done::Looked { key: key.clone(), number, verdict: None };
        self.jobs.start(if_panicked, async move {
            let verdict = verdicts::look(&world, &key.name, &key.tag, live, canary).await;
            Done::Looked { key, number, verdict }
        });
    }

    /// What others say about the trial `number`.
    pub(in crate::service) fn looked(
        &mut self,
        key: &TagKey,
        number: u64,
        verdict: Option<Verdict>,
    ) {
        let running = self.canaries.trials.get_mut(key).filter(|it| it.number == number);
        let Some(running) = running else { return };
        running.looking = false;
        let Some(verdict) = verdict else { return };
        let told = matches!(running.promotion, Promotion::Running(_) | Promotion::Told { .. });
        if verdict.outcome == CanaryOutcome::RolledBack {
            // Else it is found again, if the promotion comes to nothing.
            if running.promotion.retract() {
                let why = format!("rolled back elsewhere by {}: {}", verdict.by, verdict.reason);
                self.give_up(key, By { who: "registry".to_owned(), why });
            }
        } else if !told {
            self.promoted_elsewhere(key, verdict.live);
        }
        self.show_canaries(self.clock.now());
    }

    /// Others have promoted the canary, against `live`.
    fn promoted_elsewhere(&mut self, key: &TagKey, live: Digest) {
        let Some(running) = self.canaries.trials.get(key) else { return };
        if live == running.pair.live && running.trial.share().is_some() {
            // While it was tried here: the tag moves, if it has not moved already.
            self.apply(Event::Tag(key.clone(), tags::Event::Retry));
        } else {
            let (canary_tag, canary) = (running.canary_tag.clone(), running.pair.canary);
            self.retire(key, canary_tag, canary);
        }
    }
}
