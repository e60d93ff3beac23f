//! Canaries on trial: their steps, and the effects of these.

use std::{collections::BTreeSet, sync::Arc};

use outrigger_core::{machines::Event, tags};
use outrigger_trials::{Effect as TrialEffect, Trials};
use tokio::{sync::oneshot::error::TryRecvError, time::sleep_until};

use super::{Service, Stop};
use crate::{jobs::Done, trial_context::TrialContext, world::defect};

impl Service {
    /// Waits until the trials are due to be judged; for ever if there is no trial.
    pub(super) fn judging(&self) -> impl Future<Output = ()> + Send + use<> {
        let at = self.trials.judge_at().map(|at| self.clock.instant(at));
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    pub(super) fn judge(&mut self) -> Option<Stop> {
        self.try_trials(|trials, cx| trials.judge(cx));
        None
    }

    /// Answers those whose decisions have been made.
    pub(super) fn answer_decisions(&mut self) {
        for (mut decision, done) in std::mem::take(&mut self.decisions) {
            match decision.try_recv() {
                // The caller may have gone.
                Ok(result) => drop(done.send(result)),
                Err(TryRecvError::Empty) => self.decisions.push((decision, done)),
                // Dropped at the stop, which is the answer.
                Err(TryRecvError::Closed) => {}
            }
        }
    }

    /// Runs a step that may change the view of every trial.
    pub(super) fn try_trials(&mut self, step: impl FnOnce(&mut Trials, &TrialContext<'_>)) {
        self.try_canaries(step);
        self.tried.extend(self.trials.models());
    }

    /// Runs a step of the trials and carries out its effects.
    pub(super) fn try_canaries(&mut self, step: impl FnOnce(&mut Trials, &TrialContext<'_>)) {
        let now = self.clock.now();
        let (machines, versions) = (&self.machines, &self.versions);
        step(&mut self.trials, &TrialContext { machines, versions, now });
        for effect in self.trials.take_effects() {
            self.carry_out_trial(effect);
        }
    }

    fn carry_out_trial(&mut self, effect: TrialEffect) {
        use TrialEffect as E;
        match effect {
            E::Reject(key, canary) => self.apply(Event::Tag(key, tags::Event::Reject(canary))),
            E::Promote(key, canary) => self.apply(Event::Tag(key, tags::Event::Promote(canary))),
            E::LookUp(key) => self.apply(Event::Tag(key, tags::Event::Retry)),
            E::Removed(key) => {
                // The canary version still answers requests by its own name.
                let models = BTreeSet::from([key.name.clone()]);
                let used = self.publishing.routing.take_used(&models, self.clock.now());
                self.apply(Event::Used(used));
                self.apply(Event::Tag(key, tags::Event::Removed));
            }
            // Other control planes see its result.
            E::Run(job) => self.registry_jobs.push(job),
        }
    }

    /// Starts the jobs with the registry that the trials requested.
    pub(super) fn start_registry_jobs(&mut self) {
        for job in std::mem::take(&mut self.registry_jobs) {
            let world = Arc::clone(&self.world);
            self.jobs.start(Done::Trial(job.panicked(defect())), async move {
                Done::Trial(job.run(&*world).await)
            });
        }
    }
}
