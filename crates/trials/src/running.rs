//! One canary on trial.

mod report;

use std::{sync::Arc, time::Duration};

use outrigger_canary::{
    Arm, Cause, Conclusion, Deviation, Mode, Salt, Settings, Trial, statistics::Comparison,
};
use outrigger_core::{Failure, Moment, machines::TagKey};

use crate::{
    effect::Effect,
    in_flight::Calls,
    jobs::{Job, Kind, promote::Push},
    judge::{Evidence, Judge},
    metrics,
    outcomes::{Outcomes, Recorded},
    pair::Pair,
    profile::Profiled,
    promotion::{Moving, Promotion},
    record::{Decided, Paused},
    reports::Reports,
    views::{By, DeviationView, VerdictView},
};

/// The number of deviations shown for each arm.
const DEVIATIONS: usize = 3;

/// A canary on trial.
pub(crate) struct Running {
    pub(crate) number: u64,
    /// The live tag, whose traffic is split.
    pub(crate) key: TagKey,
    pub(crate) pair: Pair,
    pub(crate) canary_tag: TagKey,
    pub(crate) trial: Trial,
    pub(crate) salt: Salt,
    pub(crate) outcomes: Arc<Outcomes>,
    pub(crate) calls: Arc<Calls>,
    /// The profiles of live and of the canary.
    profiles: [Option<Arc<Profiled>>; 2],
    pub(crate) promotion: Promotion,
    /// The number of failed attempts to move the registry's tag.
    failures: u32,
    /// True if the sizes of the arms matched the share when last checked.
    fits: bool,
    /// True while the registry is asked for the decisions of other control planes.
    pub(crate) looking: bool,
    /// True after the trial was found to need more time than it has.
    starved: bool,
    /// The requests assigned to the canary that live answered, for want of room.
    left_to_live: u64,
    /// True if the canary was held back when last checked.
    held_back: bool,
}

/// The arguments of [`Running::new`].
pub(crate) struct Start {
    pub(crate) number: u64,
    pub(crate) key: TagKey,
    pub(crate) canary_tag: TagKey,
    pub(crate) settings: Arc<Settings>,
    /// The salt of a trial that has none yet.
    pub(crate) salt: Salt,
    /// The profiles of live and of the canary.
    pub(crate) profiles: [Option<Arc<Profiled>>; 2],
}

impl Running {
    /// Starts a trial, or continues a paused one.
    pub(crate) fn new(start: Start, paused: Paused, now: Moment) -> Self {
        let Start { number, key, canary_tag, settings, salt, profiles } = start;
        let Paused { pair, progress, exposures, salt: earlier, callers, decided } = paused;
        let trial = Trial::new(settings, progress, rand::random(), now);
        Self {
            number,
            key,
            pair,
            canary_tag,
            salt: earlier.unwrap_or(salt),
            outcomes: Arc::new(Outcomes::new(exposures, callers)),
            calls: Arc::default(),
            profiles,
            promotion: match decided {
                Some(Decided::Recommended) => Promotion::Recommended,
                Some(Decided::Promoted(_)) | None => Promotion::Undecided,
            },
            failures: 0,
            fits: true,
            looking: false,
            starved: false,
            left_to_live: 0,
            held_back: trial.is_held_back(),
            trial,
        }
    }

    /// The state from which the trial can continue.
    pub(crate) fn paused(&self, now: Moment) -> Paused {
        Paused {
            pair: self.pair,
            progress: self.trial.progress(now),
            exposures: self.outcomes.exposures().clone(),
            salt: Some(self.salt),
            callers: self.outcomes.callers.clone(),
            decided: self.promotion.decided(),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.trial.settings().mode
    }

    /// Counts the outcomes of requests.
    pub(crate) fn collect(&mut self, now: Moment) {
        let records = self.outcomes.take();
        metrics::tried(&self.key.name, &records);
        metrics::unpaired(&self.key.name, self.outcomes.take_unpaired());
        metrics::lost(self.outcomes.take_lost());
        let left_to_live = self.calls.take_left_to_live();
        metrics::left_to_live(&self.key.name, left_to_live);
        self.left_to_live += left_to_live;
        for record in records {
            match record {
                Recorded::Outcome(share, observation) => {
                    self.trial.observe(share, &observation, now);
                }
                Recorded::LeftOut(observation) => self.trial.see(&observation),
                Recorded::Pair(pair) => self.trial.observe_pair(&pair),
                Recorded::Features(share, arm, categories) => {
                    self.trial.observe_features(share, arm, &categories);
                }
            }
        }
    }

    /// Judges the trial and follows the verdict. Returns whether its share has changed, and the
    /// conclusion if there is one.
    pub(crate) fn judge(
        &mut self,
        judge: &mut dyn Judge,
        now: Moment,
        reports: &mut Reports,
    ) -> (bool, Option<Conclusion>) {
        let before = self.trial.share();
        self.trial.advance(now);
        self.calls.limit(self.trial.most_in_flight(self.calls.took()));
        let verdict = self.evidence(now).map(|evidence| judge.verdict(&evidence));
        let conclusion = self.trial.follow(verdict, now);
        self.report_sizes();
        self.report_held_back(reports);
        self.report_skew();
        self.report_time(conclusion, now);
        (self.report_share(before, reports), conclusion)
    }

    fn evidence(&self, now: Moment) -> Option<Evidence<'_>> {
        let (statistics, course) = self.trial.evidence(now)?;
        let (Pair { live, canary }, decider) = (self.pair, self.trial.decider());
        Some(Evidence { tag: &self.key, live, canary, statistics, course, decider })
    }

    /// Makes the canary live in the place that the trial's mode names, unless that is under way.
    pub(crate) fn promote(&mut self, by: By) -> Option<Effect> {
        match self.promotion {
            Promotion::Moving(_) | Promotion::Moved { .. } => None,
            Promotion::Failed { unsure, .. } => Some(self.move_tag(by, unsure)),
            _ => Some(self.move_tag(by, false)),
        }
    }

    /// Moves the tag to the canary. `unsure`: an earlier attempt may have moved it.
    pub(crate) fn move_tag(&mut self, by: By, unsure: bool) -> Effect {
        let (key, pair) = (self.key.clone(), self.pair);
        if self.mode() == Mode::Local {
            self.promotion = Promotion::moved(by);
            return Effect::Promote(key, pair.canary);
        }
        let push = Arc::<Push>::default();
        let moving = Moving { by, push: Arc::clone(&push), unsure, aborts: Vec::new() };
        self.promotion = Promotion::Moving(moving);
        Effect::Run(Job::new(Kind::Promote { key, number: self.number, pair, push }))
    }

    /// Moves the tag again, if the next attempt is due.
    pub(crate) fn retry_move(&mut self, now: Moment) -> Option<Effect> {
        match &self.promotion {
            Promotion::Failed { by, retry_at, .. } if *retry_at <= now => {
                let by = by.clone();
                self.promote(by)
            }
            _ => None,
        }
    }

    /// Stores a failure to move the tag and the time of the next attempt. `delay` returns the wait
    /// for a number of failures.
    pub(crate) fn move_failed(
        &mut self,
        (by, failure): (By, Failure),
        unsure: bool,
        now: Moment,
        delay: impl FnOnce(u32) -> Duration,
    ) {
        tracing::warn!(
            model.name = %self.key.name, model.tag = %self.key.tag,
            model.digest = %self.pair.canary,
            reason = %failure.reason, error = %failure.message,
            "the canary cannot be promoted in the registry"
        );
        self.failures += 1;
        let retry_at = now + delay(self.failures);
        self.promotion = Promotion::Failed { by, failure, retry_at, unsure };
    }

    /// Asks the registry for the decisions of other control planes, if the trial's mode shares
    /// them.
    pub(crate) fn look_for_verdict(&mut self) -> Option<Effect> {
        if self.looking || self.mode() != Mode::Registry {
            return None;
        }
        self.looking = true;
        let (key, number, pair) = (self.key.clone(), self.number, self.pair);
        Some(Effect::Run(Job::new(Kind::LookForVerdict { key, number, pair })))
    }

    /// The last verdict; `None` before the split.
    pub(crate) fn verdict(&self) -> Option<VerdictView> {
        let deviations = [Arm::Live, Arm::Canary].into_iter().flat_map(|arm| {
            let found = self.deviations(arm, DEVIATIONS).into_iter();
            found.map(move |deviation| DeviationView::new(arm, deviation))
        });
        VerdictView::of(&self.trial, deviations.collect())
    }

    /// The reason of a conclusion, in one line. It says if the canary takes more of the engine than
    /// its share.
    pub(crate) fn reason(&self, cause: Cause) -> String {
        let reason = self.trial.reason(cause);
        match self.calls.took().filter(|took| self.trial.is_costly(*took)) {
            Some(took) if self.left_to_live > 0 => format!(
                "{reason}; overload: its calls take {took:.0?}, more than three times as long as \
                 live's usually do, and live answered {} of its requests",
                self.left_to_live
            ),
            _ => reason,
        }
    }

    /// The features of the arms whose models have a profile.
    pub(crate) fn features(&self) -> Vec<(Arm, Comparison)> {
        let Some(seen) = self.trial.statistics() else { return Vec::new() };
        let compared = [Arm::Live, Arm::Canary].into_iter().zip(&self.profiles);
        let compared = compared.filter_map(|(arm, profiled)| {
            let profile = Arc::clone(&profiled.as_ref()?.profile);
            Some((arm, seen.compare(arm, profile)))
        });
        compared.collect()
    }

    /// The categories in which an arm's features deviate most from its profile, largest deviation
    /// first.
    fn deviations(&self, arm: Arm, most: usize) -> Vec<Deviation> {
        let profile = self.profiles[usize::from(arm == Arm::Canary)].as_ref();
        let (Some(profile), Some(seen)) = (profile, self.trial.statistics()) else {
            return Vec::new();
        };
        seen.deviations(arm, &profile.profile, most)
    }
}
