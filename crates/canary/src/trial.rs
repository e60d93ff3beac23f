//! The course of one trial: warm-up, split, judgement, ramp, conclusion.

mod conclusion;
mod split;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use outrigger_core::{Arm, Moment};
use serde::{Deserialize, Serialize};

pub use self::conclusion::{Cause, Conclusion};
use self::split::{Split, SplitProgress, Stopwatch};
use crate::{
    Course, Decider, Decision, Observation, OnStarved, Pair, Ramp, Reference, Settings, Share,
    Statistics, Step, Verdict, WarmUp,
    breaker::{Breaker, Probes},
    capacity::Capacity,
    statistics::Stage,
};

/// The trial of one canary against one live version.
///
/// Input: outcomes of requests, and the time. Output: the canary's share, and the
/// conclusion. A canary that may be promoted stays on trial until it is promoted or turns
/// out to be harmful.
#[derive(Debug)]
pub struct Trial {
    settings: Arc<Settings>,
    decider: Decider,
    time: Stopwatch,
    step: usize,
    phase: Phase,
    promising: bool,
    capacity: Capacity,
    /// Determines the random choices.
    seed: u64,
}

#[derive(Debug)]
enum Phase {
    /// Only live serves, and is measured for the reference.
    WarmUp(Vec<Observation>),
    /// The traffic is split between the arms.
    Split(Box<Split>),
}

/// The saved state from which a later process resumes the trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Time on trial.
    spent: Duration,
    /// The present step of the ramp.
    step: usize,
    /// The state of the split, if it has begun.
    split: Option<SplitProgress>,
}

impl Progress {
    /// Time on trial.
    pub fn spent(&self) -> Duration {
        self.spent
    }
}

impl Trial {
    /// Begins a trial, or resumes one that an earlier process has saved. Its random choices
    /// follow from the seed.
    pub fn new(settings: Arc<Settings>, progress: Progress, seed: u64, now: Moment) -> Self {
        let phase = match progress.split {
            None => Phase::WarmUp(Vec::new()),
            Some(seen) => Phase::Split(Box::new(Split::resume(seen, seed, now))),
        };
        Self {
            decider: Decider::new(settings.judge.clone()),
            settings,
            time: Stopwatch::start(progress.spent, now),
            step: progress.step,
            phase,
            promising: false,
            capacity: Capacity::new(now),
            seed,
        }
    }

    /// Records a request that ended at `now`. `share` is `None` for a request that was
    /// not split.
    pub fn observe(&mut self, share: Option<Share>, observation: &Observation, now: Moment) {
        self.see(observation);
        match (&mut self.phase, share) {
            (Phase::WarmUp(sample), _)
                if (sample.len() as u64) < self.settings.warm_up.requests =>
            {
                sample.push(*observation);
            }
            (Phase::Split(split), Some(share)) => split.observe(share, observation, now),
            _ => {}
        }
    }

    /// Records a request that the comparison leaves out: a further request of a key, or one
    /// that arrived when the canary had as many calls in flight as it may have.
    pub fn see(&mut self, observation: &Observation) {
        self.capacity.observe(observation);
        if let Some(breaker) = self.breaker_mut() {
            breaker.observe(observation);
        }
    }

    /// Records a request that both arms answered.
    pub fn observe_pair(&mut self, pair: &Pair) {
        if let Phase::Split(split) = &mut self.phase {
            split.statistics.record_pair(pair);
        }
    }

    /// Records the features of a request by their categories in the arm's profile.
    pub fn observe_features(&mut self, share: Share, arm: Arm, categories: &[usize]) {
        if let Phase::Split(split) = &mut self.phase {
            split.statistics.record_features(share, arm, categories);
        }
    }

    /// Takes the step that is due, and judges by the trial's own statistics: as
    /// [`Self::advance`] and [`Self::follow`].
    pub fn tick(&mut self, now: Moment) -> Option<Conclusion> {
        self.advance(now);
        let verdict = self.evidence(now);
        let verdict = verdict.map(|(seen, course)| self.decider.verdict(seen, course));
        self.follow(verdict, now)
    }

    /// Splits the traffic once enough is known of live, and measures the engine's work and
    /// live's state.
    pub fn advance(&mut self, now: Moment) {
        self.capacity.measure(now);
        if let Some(breaker) = self.breaker_mut() {
            breaker.tick(now);
        }
        if self.is_warmed_up(now) {
            self.split(now);
        }
    }

    /// The statistics to judge by, and how far the trial has come; `None` before the
    /// split.
    pub fn evidence(&self, now: Moment) -> Option<(&Statistics, Course)> {
        let Phase::Split(split) = &self.phase else { return None };
        Some((&split.statistics, split.course(now)))
    }

    /// The sequential tests by which it is judged.
    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    /// Acts on a verdict, which is kept; `None` before the split. A conclusion is returned
    /// once; after [`Conclusion::Promote`], a rollback may still follow.
    pub fn follow(&mut self, verdict: Option<Verdict>, now: Moment) -> Option<Conclusion> {
        let decision = verdict.map_or(Decision::Continue, |verdict| self.keep(verdict, now));
        let overdue = self.spent(now) >= self.settings.judge.maximum_time;
        match decision {
            Decision::Rollback => Some(Conclusion::Rollback(Cause::Proved)),
            _ if self.is_overload() => Some(Conclusion::Rollback(Cause::Overload)),
            Decision::Promote if self.is_fully_ramped(now) && !self.is_held_back() => {
                self.promote(Cause::Proved)
            }
            Decision::Starved => self.starved(),
            _ if overdue => self.starved(),
            _ => {
                self.ramp_up(now);
                None
            }
        }
    }

    /// True if it is proved that live is far worse with the canary than without it, with
    /// half of the error that the judge may make.
    fn is_overload(&self) -> bool {
        let error = (1.0 - self.settings.judge.confidence) / 2.0;
        self.probes().is_some_and(|probes| probes.are_harmful(error))
    }

    fn promote(&mut self, cause: Cause) -> Option<Conclusion> {
        let news = !std::mem::replace(&mut self.promising, true);
        news.then_some(Conclusion::Promote(cause))
    }

    fn starved(&mut self) -> Option<Conclusion> {
        if self.promising {
            return None;
        }
        let fits = self.verdict().is_none_or(|verdict| verdict.sample_ratio.fits);
        let cause = if fits { Cause::Starved } else { Cause::ShareMismatch };
        match self.settings.on_starved {
            OnStarved::Rollback => Some(Conclusion::Rollback(cause)),
            OnStarved::Promote if !self.is_held_back() => self.promote(cause),
            OnStarved::Promote | OnStarved::Continue => None,
        }
    }

    /// True if the warm-up is complete.
    fn is_warmed_up(&self, now: Moment) -> bool {
        let Phase::WarmUp(sample) = &self.phase else { return false };
        let WarmUp { requests, time } = self.settings.warm_up;
        sample.len() as u64 >= requests
            || (sample.len() >= Reference::LEAST && self.spent(now) >= time)
    }

    fn split(&mut self, now: Moment) {
        let Phase::WarmUp(sample) = &self.phase else { return };
        let split = Split::begin(sample, self.settings.judge.quantile(), self.seed, now);
        self.phase = Phase::Split(Box::new(split));
    }

    /// Keeps the verdict, and corrects it where the ramp has not ended. Returns its
    /// decision.
    fn keep(&mut self, mut verdict: Verdict, now: Moment) -> Decision {
        let grows = self.step > 0 || self.has_further_step();
        let Phase::Split(split) = &mut self.phase else { return Decision::Continue };
        // The judge assumes that the canary's share stays constant. With a growing share
        // its forecast is too low, so the trial starves only at the maximum time.
        if grows
            && verdict.decision == Decision::Starved
            && split.time.elapsed(now) < self.settings.judge.maximum_time
        {
            verdict.decision = Decision::Continue;
        }
        split.verdict.insert(verdict).decision
    }

    fn ramp_up(&mut self, now: Moment) {
        let due = self.is_step_over(now) && self.has_further_step();
        let Phase::Split(split) = &mut self.phase else { return };
        if due {
            self.step += 1;
            split.next_step(now);
        }
    }

    fn is_step_over(&self, now: Moment) -> bool {
        let Phase::Split(split) = &self.phase else { return false };
        let requests = split.statistics.requests().1 - split.step_requests;
        match &self.settings.ramp {
            Ramp::Steps(steps) => steps.get(self.step).is_none_or(|step| {
                split.step_time.elapsed(now) >= step.time && requests >= step.requests
            }),
            Ramp::Evidence { requests: needed, .. } => {
                let findings = split.verdict.iter().flat_map(|verdict| &verdict.findings);
                requests >= *needed && findings.into_iter().all(|it| it.difference <= it.margin)
            }
        }
    }

    fn has_further_step(&self) -> bool {
        match &self.settings.ramp {
            Ramp::Steps(steps) => self.step + 1 < steps.len(),
            Ramp::Evidence { most, .. } => self.share().is_some_and(|share| share < *most),
        }
    }

    /// True if no step of the ramp delays the promotion. A ramp by evidence never does,
    /// because the evidence that promotes is stronger than that of its steps.
    fn is_fully_ramped(&self, now: Moment) -> bool {
        matches!(self.settings.ramp, Ramp::Evidence { .. })
            || !self.has_further_step() && self.is_step_over(now)
    }

    /// The present step of the ramp.
    pub fn step(&self) -> usize {
        self.step
    }

    /// The canary's share of the traffic; `None` before the split.
    pub fn share(&self) -> Option<Share> {
        let Phase::Split(_) = &self.phase else { return None };
        match &self.settings.ramp {
            Ramp::Steps(steps) => {
                let step = steps.get(self.step).or(steps.last());
                step.map(|step: &Step| step.share)
            }
            Ramp::Evidence { first, most, .. } => Some(doubled(*first, self.step).min(*most)),
        }
    }

    /// The limit of the canary's calls in flight, shadowed requests included. `took` is the
    /// mean time of its calls; `None` if none has ended yet. A request that arrives while
    /// that many are in flight is live's, and is left out of the comparison, whichever arm
    /// it is assigned to: this depends on earlier requests only.
    ///
    /// 0 while live is far worse than before the split, or was until lately.
    pub fn most_in_flight(&self, took: Option<Duration>) -> u32 {
        if self.breaker().is_some_and(|breaker| !breaker.is_closed()) {
            return 0;
        }
        let share = self.share().map_or(0.0, Share::probability);
        let part = share + (1.0 - share) * self.settings.shadow;
        self.capacity.most_in_flight(part, took)
    }

    /// True if the canary gets requests only in probes or not at all, because live was far
    /// worse than before the split.
    pub fn is_held_back(&self) -> bool {
        self.breaker().is_some_and(|breaker| !breaker.is_at_rest())
    }

    /// The probes that show whether the canary makes live far worse; `None` before the
    /// split.
    pub fn probes(&self) -> Option<&Probes> {
        self.breaker().map(Breaker::probes)
    }

    fn breaker_mut(&mut self) -> Option<&mut Breaker> {
        match &mut self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => split.breaker.as_mut(),
        }
    }

    fn breaker(&self) -> Option<&Breaker> {
        match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => split.breaker.as_ref(),
        }
    }

    /// True if the canary's calls take so much longer than live's that it gets only its
    /// share of the engine, and not of the requests. `took` is the mean time of its calls.
    pub fn is_costly(&self, took: Duration) -> bool {
        self.capacity.is_costly(took)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The last verdict; `None` before the split.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => split.verdict.as_ref(),
        }
    }

    /// The reason of a conclusion with the figures of the last verdict, on one line.
    pub fn reason(&self, cause: Cause) -> String {
        let verdict = self.verdict().map(ToString::to_string).unwrap_or_default();
        match cause {
            Cause::Proved => verdict,
            Cause::Starved => format!("it will not be decided in time; {verdict}"),
            Cause::ShareMismatch => format!("share_mismatch; {verdict}"),
            Cause::Overload => {
                let probes = self.probes().map(ToString::to_string).unwrap_or_default();
                format!("overload: {probes}; {verdict}")
            }
        }
    }

    /// The statistics since the split; `None` before it.
    pub fn statistics(&self) -> Option<&Statistics> {
        match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => Some(&split.statistics),
        }
    }

    /// Both arms' statistics of about the last five minutes, at most since this process
    /// started; `None` before the split.
    pub fn lately(&self, now: Moment) -> Option<Stage> {
        match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => Some(split.lately.total(now)),
        }
    }

    /// True if the canary may be promoted.
    pub fn is_promising(&self) -> bool {
        self.promising
    }

    /// Time on trial.
    pub fn spent(&self, now: Moment) -> Duration {
        self.time.elapsed(now)
    }

    /// The state from which a later process resumes.
    pub fn progress(&self, now: Moment) -> Progress {
        let split = match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => Some(split.progress(now)),
        };
        Progress { spent: self.spent(now), step: self.step, split }
    }
}

/// The share doubled `times` times, as long as it stays below 1.
fn doubled(share: Share, times: usize) -> Share {
    let double = |share: Share| Share::new(share.probability() * 2.0).unwrap_or(share);
    (0..times.min(32)).fold(share, |share, _| double(share))
}
