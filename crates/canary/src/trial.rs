//! The course of one trial: measure live, split, judge, ramp up, conclude.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use outrigger_core::{Arm, Moment};
use serde::{Deserialize, Serialize};

use crate::{
    Course, Decider, Decision, Observation, OnStarved, Pair, Ramp, Reference, Settings, Share,
    Statistics, Step, Verdict, WarmUp,
    statistics::{Pace, Stage, Window},
};

/// One canary against one live version.
///
/// It is told what requests did and what time it is; it says which share the
/// canary has, and once what is to become of it. A canary that may be promoted
/// stays on trial until it is, or until it turns out to do harm.
#[derive(Debug)]
pub struct Trial {
    settings: Arc<Settings>,
    decider: Decider,
    time: Stopwatch,
    step: usize,
    phase: Phase,
    promising: bool,
}

#[derive(Debug)]
enum Phase {
    /// Live alone is measured.
    WarmUp(Vec<Observation>),
    /// The traffic is split.
    Split(Box<Split>),
}

#[derive(Debug)]
struct Split {
    time: Stopwatch,
    statistics: Statistics,
    /// What both arms did lately, for people to see. The judge's evidence never
    /// forgets: a test that began anew would err as often each time.
    lately: Window<Stage>,
    pace: Pace,
    /// Of this step of the ramp, and with how many requests it began.
    step_time: Stopwatch,
    step_requests: u64,
    verdict: Option<Verdict>,
}

/// Time that has gone by, in earlier processes too.
#[derive(Debug, Clone, Copy)]
struct Stopwatch {
    before: Duration,
    since: Moment,
}

impl Split {
    /// What was seen by an earlier process, if there was one. What happened lately is
    /// known anew soon enough.
    fn begin(seen: SplitProgress, now: Moment) -> Self {
        Self {
            time: Stopwatch::start(seen.spent, now),
            statistics: seen.statistics,
            lately: Window::new(Duration::from_secs(30), 10),
            pace: Pace::new(now),
            step_time: Stopwatch::start(seen.step_spent, now),
            step_requests: seen.step_requests,
            verdict: None,
        }
    }

    fn observe(&mut self, share: Share, observation: &Observation, now: Moment) {
        self.statistics.record(share, observation);
        self.lately.at(now).record(self.statistics.reference(), observation);
        self.pace.count(now);
    }

    fn course(&self, now: Moment) -> Course {
        Course { elapsed: self.time.elapsed(now), pace: self.pace.per_second(now) }
    }
}

impl Stopwatch {
    fn start(before: Duration, since: Moment) -> Self {
        Self { before, since }
    }

    fn elapsed(self, now: Moment) -> Duration {
        self.before + now.since(self.since)
    }
}

/// What is to become of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// It may be live.
    Promote(Cause),
    /// It must go.
    Rollback(Cause),
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is proved.
    Proved,
    /// It will not be decided in time.
    Starved,
}

/// What a later process needs to go on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// How long it has been on trial.
    spent: Duration,
    /// How far the ramp has come.
    step: usize,
    /// What was seen since the split.
    split: Option<SplitProgress>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitProgress {
    spent: Duration,
    statistics: Statistics,
    step_spent: Duration,
    step_requests: u64,
}

impl Progress {
    /// How long it has been on trial.
    pub fn spent(&self) -> Duration {
        self.spent
    }
}

impl Trial {
    /// A trial that begins, or goes on where an earlier process has left it.
    pub fn new(settings: Arc<Settings>, progress: Progress, now: Moment) -> Self {
        let phase = match progress.split {
            None => Phase::WarmUp(Vec::new()),
            Some(seen) => Phase::Split(Box::new(Split::begin(seen, now))),
        };
        Self {
            decider: Decider::new(settings.judge.clone()),
            settings,
            time: Stopwatch::start(progress.spent, now),
            step: progress.step,
            phase,
            promising: false,
        }
    }

    /// Counts a request that is over `now`. One without a share was not split.
    pub fn observe(&mut self, share: Option<Share>, observation: &Observation, now: Moment) {
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

    /// Counts a request that both arms answered.
    pub fn observe_pair(&mut self, pair: &Pair) {
        if let Phase::Split(split) = &mut self.phase {
            split.statistics.record_pair(pair);
        }
    }

    /// Counts the features of a request, by their categories in the arm's profile.
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

    /// Splits the traffic once enough is known of live.
    pub fn advance(&mut self, now: Moment) {
        if self.is_measured(now) {
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
            Decision::Promote if self.is_fully_ramped(now) => self.promote(Cause::Proved),
            Decision::Starved => self.starved(),
            _ if overdue => self.starved(),
            _ => {
                self.ramp_up(now);
                None
            }
        }
    }

    fn promote(&mut self, cause: Cause) -> Option<Conclusion> {
        let news = !std::mem::replace(&mut self.promising, true);
        news.then_some(Conclusion::Promote(cause))
    }

    fn starved(&mut self) -> Option<Conclusion> {
        if self.promising {
            return None;
        }
        match self.settings.on_starved {
            OnStarved::Rollback => Some(Conclusion::Rollback(Cause::Starved)),
            OnStarved::Promote => self.promote(Cause::Starved),
            OnStarved::Continue => None,
        }
    }

    /// Whether enough is known of live.
    fn is_measured(&self, now: Moment) -> bool {
        let Phase::WarmUp(sample) = &self.phase else { return false };
        let WarmUp { requests, time } = self.settings.warm_up;
        sample.len() as u64 >= requests
            || (sample.len() >= Reference::LEAST && self.spent(now) >= time)
    }

    fn split(&mut self, now: Moment) {
        let Phase::WarmUp(sample) = &self.phase else { return };
        let reference = Reference::new(sample, self.settings.judge.quantile());
        let nothing = SplitProgress {
            spent: Duration::ZERO,
            statistics: Statistics::new(Arc::new(reference)),
            step_spent: Duration::ZERO,
            step_requests: 0,
        };
        self.phase = Phase::Split(Box::new(Split::begin(nothing, now)));
    }

    /// Keeps the verdict, and corrects it where the ramp has not ended. Returns its
    /// decision.
    fn keep(&mut self, mut verdict: Verdict, now: Moment) -> Decision {
        let grows = self.step > 0 || self.has_further_step();
        let Phase::Split(split) = &mut self.phase else { return Decision::Continue };
        // The judge takes the traffic to stay as it was, and a larger share brings more:
        // then nothing is known before the time is over.
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
            split.step_time = Stopwatch::start(Duration::ZERO, now);
            split.step_requests = split.statistics.requests().1;
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

    /// Whether it has passed all the steps that it has to. Evidence enough to
    /// promote it is evidence enough.
    fn is_fully_ramped(&self, now: Moment) -> bool {
        matches!(self.settings.ramp, Ramp::Evidence { .. })
            || !self.has_further_step() && self.is_step_over(now)
    }

    /// How far the ramp has come.
    pub fn step(&self) -> usize {
        self.step
    }

    /// The canary's share of the traffic; `None`: it has none.
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

    /// How it is tried.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the judge said last; `None` before the split.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => split.verdict.as_ref(),
        }
    }

    /// What was seen since the split; `None` before it.
    pub fn statistics(&self) -> Option<&Statistics> {
        match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => Some(&split.statistics),
        }
    }

    /// What both arms did in about the last five minutes, since this process began at
    /// most; `None` before the split.
    pub fn lately(&self, now: Moment) -> Option<Stage> {
        match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => Some(split.lately.total(now)),
        }
    }

    /// Whether it may be promoted.
    pub fn is_promising(&self) -> bool {
        self.promising
    }

    /// How long it has been on trial.
    pub fn spent(&self, now: Moment) -> Duration {
        self.time.elapsed(now)
    }

    /// What a later process needs to go on.
    pub fn progress(&self, now: Moment) -> Progress {
        let split = match &self.phase {
            Phase::WarmUp(_) => None,
            Phase::Split(split) => Some(SplitProgress {
                spent: split.time.elapsed(now),
                statistics: split.statistics.clone(),
                step_spent: split.step_time.elapsed(now),
                step_requests: split.step_requests,
            }),
        };
        Progress { spent: self.spent(now), step: self.step, split }
    }
}

/// A share doubled so many times; a double that leaves live nothing is left out.
fn doubled(share: Share, times: usize) -> Share {
    let double = |share: Share| Share::new(share.probability() * 2.0).unwrap_or(share);
    (0..times.min(32)).fold(share, |share, _| double(share))
}
