//! Canaries on trial: their steps, and the effects of these.

use std::{collections::BTreeSet, sync::Arc};

use outrigger_core::{machines::Event, tags};
use outrigger_trials::{CanaryRecord, Effect as TrialEffect, Trials};
use tokio::{sync::oneshot::error::TryRecvError, time::sleep_until};

use super::{Service, Stop};
use crate::{
    jobs::Done,
    trial_context::TrialContext,
    world::{blocking, defect},
};

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
        self.try_canaries(|trials, cx| trials.judge(cx));
        self.show_canaries();
        None
    }

    /// Answers those whose decisions have been made.
    pub(super) fn report_decisions(&mut self) {
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

    /// Publishes the canaries on trial.
    pub(super) fn show_canaries(&mut self) {
        self.try_canaries(|trials, cx| trials.show(&trials.models(), cx));
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
            E::Run(job) => {
                let world = Arc::clone(&self.world);
                self.jobs.start(Done::Trial(job.panicked(defect())), async move {
                    Done::Trial(job.run(&*world).await)
                });
            }
            E::Save(record) => self.save_trials(record),
        }
    }

    fn save_trials(&mut self, record: CanaryRecord) {
        self.trials_written += 1;
        let (world, number) = (Arc::clone(&self.world), self.trials_written);
        self.jobs.start(Done::Nothing, async move {
            blocking(&world, move |world| world.write_canaries(number, &record)).await;
            Done::Nothing
        });
    }
}
