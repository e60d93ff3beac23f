//! Canaries: which there are, their trials, and what is done about them.

mod act;
mod journal;
mod promotion;
mod removal;
mod verdicts;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use outrigger_canary::{
    Arm, Cause, Conclusion, Decision, Deviation, Layer, Settings, Share, Trial,
};
use outrigger_core::{
    Digest, Failure, ModelKey, ModelName, Moment,
    fleet::{Answer, TagKey},
};
use tokio::{sync::watch, time::sleep_until};

pub(crate) use self::journal::CanaryRecord;
use self::{
    journal::{Decided, Journal, Unfinished},
    promotion::Promotion,
};

use super::Service;
use crate::{
    Profiled,
    canaries::CanaryDecision,
    lease::Live,
    metrics,
    outcomes::{Noted, Outcomes},
    split::Split,
};

/// How often outcomes are collected and judged.
const PERIOD: Duration = Duration::from_secs(1);

/// The trials of all tags.
#[derive(Default)]
pub(super) struct Canaries {
    /// By live tag.
    trials: BTreeMap<TagKey, Running>,
    /// Numbers trials.
    last: u64,
    /// Names whose routes may have changed.
    changed: BTreeSet<ModelName>,
    /// Trials of an earlier process, and of tags that nobody asks for, until they go on.
    unfinished: BTreeMap<TagKey, Unfinished>,
    /// The latest first.
    decisions: VecDeque<CanaryDecision>,
    judge_at: Option<Moment>,
    pub(super) shown: watch::Sender<Arc<crate::canaries::Canaries>>,
    journal: Journal,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    live: Digest,
    canary: Digest,
}

/// A canary on trial.
struct Running {
    number: u64,
    pair: Pair,
    canary_tag: TagKey,
    trial: Trial,
    salt: Arc<str>,
    outcomes: Arc<Outcomes>,
    /// Of live and of the canary.
    profiles: [Option<Arc<Profiled>>; 2],
    promotion: Promotion,
    /// How often the registry could not be told.
    failures: u32,
    /// The arms were as large as they should be.
    fits: bool,
    /// Whether the registry is being asked what others have decided.
    looking: bool,
    /// It was found that it will not be decided in time.
    starved: bool,
}

/// What requests of a tag on trial get: the canary and its route, its share, and
/// the number of the trial.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arms {
    pub(super) canary: ModelKey,
    route: u64,
    share: Option<Share>,
    trial: u64,
}

impl Service {
    /// Waits until the trials are to be looked at; for ever when there is none.
    pub(super) fn judging(&self) -> impl Future<Output = ()> + Send + use<> {
        let at = self.canaries.judge_at.map(|at| self.clock.instant(at));
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Collects outcomes, judges, and acts.
    pub(super) fn judge(&mut self) -> Option<super::Stop> {
        let now = self.clock.now();
        self.canaries.judge_at = None;
        let keys: Vec<_> = self.canaries.trials.keys().cloned().collect();
        for key in keys {
            self.judge_one(&key, now);
        }
        self.show_canaries(now);
        None
    }

    fn judge_one(&mut self, key: &TagKey, now: Moment) {
        let Some(running) = self.canaries.trials.get_mut(key) else { return };
        running.collect(key, now);
        let before = running.trial.share();
        let conclusion = running.trial.tick(now);
        let fits = running.trial.verdict().is_none_or(|verdict| verdict.sample_ratio.fits);
        let share = running.trial.share();
        if running.fits && !fits {
            note_mismatch(key, running);
        }
        running.fits = fits;
        metrics::sizes_fit(key, fits);
        running.note_skew(key);
        note_time(key, running, conclusion, now);
        metrics::share(key, share);
        if share != before {
            tracing::info!(
                model.name = %key.name, model.tag = %key.tag,
                model.digest = %running.pair.canary,
                share = share.map_or(0.0, Share::probability),
                "the canary's share has changed"
            );
            self.canaries.changed.insert(key.name.clone());
        }
        if let Some(conclusion) = conclusion {
            self.conclude(key, conclusion);
        }
        self.retry_promotion(key, now);
    }

    /// Begins and ends trials where versions have come up or tags have moved.
    pub(super) fn renew_trials(&mut self, changed: &BTreeSet<ModelName>, now: Moment) {
        if !self.world.config.canary.enabled {
            return;
        }
        for name in changed {
            let ended =
                |(key, _): &(&TagKey, &Running)| key.name == *name && self.fleet.tag(key).is_none();
            let gone = self.canaries.trials.iter().filter(ended).map(|(key, _)| key.clone());
            let known = self.fleet.tags_of(name).map(|(key, _)| key.clone());
            let keys: Vec<_> = known.chain(gone).collect();
            for key in keys {
                self.renew_trial(&key, now);
            }
        }
        if !changed.is_empty() {
            self.canaries.unfinished.retain(|key, _| self.fleet.tag(key).is_some());
        }
    }

    fn renew_trial(&mut self, key: &TagKey, now: Moment) {
        let named = self.fleet.canary(key).map(|(tag, digest)| (tag.clone(), digest));
        let live = self.live_digest(key);
        if let Some(running) = self.canaries.trials.get(key) {
            let pair = running.pair;
            match (live, &named) {
                (Some(live), _) if live == pair.canary => return self.note_promoted(key),
                (Some(live), _) if live != pair.live => self.supersede(key, "the tag has moved"),
                (_, None) => return self.pause(key, now),
                (_, Some((_, named))) if *named != pair.canary => {
                    self.supersede(key, "the canary's tag has moved");
                }
                _ => return,
            }
        }
        let (Some((canary_tag, canary)), Some(live)) = (named, live) else { return };
        if self.fleet.tag(&canary_tag).and_then(|tag| tag.rejected()) == Some(canary) {
            return;
        }
        if canary == live {
            return self.note_live(key, canary_tag, canary, now);
        }
        // Without live there is nothing to compare with, nor to stand in.
        let up = |digest| self.ready(&ModelKey { name: key.name.clone(), digest }, now).is_some();
        if up(live) && up(canary) {
            self.begin(key, canary_tag, Pair { live, canary }, now);
        }
    }

    /// The registry was asked for a tag: that of a canary, or the one that it is of.
    pub(super) fn tag_polled(&mut self, key: &TagKey) {
        self.canary_polled(key);
        self.live_polled(key);
    }

    /// Nobody asks for the tag: its trial goes on when somebody does.
    fn pause(&mut self, key: &TagKey, now: Moment) {
        if let Some(running) = self.canaries.trials.get_mut(key) {
            running.collect(key, now);
        }
        let Some(running) = self.end(key) else { return };
        tracing::info!(
            model.name = %key.name, model.tag = %key.tag, model.digest = %running.pair.canary,
            "nobody asks for the tag: its canary's trial waits until somebody does"
        );
        self.canaries.unfinished.insert(key.clone(), running.unfinished(now));
    }

    /// What answers for the tag. It stays known while the engine is away.
    fn live_digest(&self, key: &TagKey) -> Option<Digest> {
        self.fleet.tag(key)?.serving()
    }

    /// The route of a version that is up.
    fn ready(&self, key: &ModelKey, now: Moment) -> Option<u64> {
        match self.fleet.answer_digest(key, now) {
            Answer::Ready(_, route) => Some(route),
            _ => None,
        }
    }

    fn begin(&mut self, key: &TagKey, canary_tag: TagKey, pair: Pair, now: Moment) {
        let version = ModelKey { name: key.name.clone(), digest: pair.canary };
        let settings = match self.settings_of(&version, pair.live) {
            Ok(settings) => Arc::new(settings),
            Err(failure) => return self.refuse(key, &canary_tag, pair, &failure),
        };
        let unfinished = self.canaries.unfinished.remove(key).filter(|it| it.pair == pair);
        tracing::info!(
            model.name = %key.name, model.tag = %key.tag, model.digest = %pair.canary,
            live = %pair.live, resumed = unfinished.is_some(),
            "a canary is on trial"
        );
        let Unfinished { progress, exposures, decided, .. } =
            unfinished.unwrap_or_else(|| Unfinished::new(pair));
        self.canaries.last += 1;
        let running = Running {
            number: self.canaries.last,
            pair,
            canary_tag,
            trial: Trial::new(settings, progress, now),
            salt: pair.canary.to_string().into(),
            outcomes: Arc::new(Outcomes::new(exposures)),
            profiles: [pair.live, pair.canary]
                .map(|digest| self.profile(&ModelKey { name: key.name.clone(), digest })),
            promotion: match decided {
                Some(Decided::Recommended) => Promotion::Recommended,
                Some(Decided::Promoted(_)) | None => Promotion::Undecided,
            },
            failures: 0,
            fits: true,
            looking: false,
            starved: false,
        };
        metrics::trial_begins(key, running.trial.share());
        self.canaries.trials.insert(key.clone(), running);
        self.canaries.changed.insert(key.name.clone());
        match decided {
            Some(Decided::Promoted(by)) => self.promote_again(key, by),
            Some(Decided::Recommended) | None => self.look_for_verdict(key),
        }
    }

    /// How a version says that it is tried: the configuration under and over it.
    ///
    /// # Errors
    /// CANARY_INVALID, with all that is wrong.
    fn settings_of(&self, version: &ModelKey, live: Digest) -> Result<Settings, Failure> {
        let canary = &self.world.config.canary;
        let label = self.kept.get(version).and_then(|kept| kept.canary.as_deref());
        let label = label.map(Layer::from_label).transpose();
        let settings = label.and_then(|label| {
            let layer = canary.defaults.clone().under(&label.unwrap_or_default());
            Settings::try_from(&layer.under(&canary.overrides).message())
        });
        let profile = self.profile(version).map(|profiled| Arc::clone(&profiled.profile));
        let live = ModelKey { name: version.name.clone(), digest: live };
        let draws = [version, &live].into_iter().any(|version| self.draws(version));
        let settings = settings.and_then(|settings| settings.against(profile));
        let settings = settings.and_then(|it| if draws { it.of_distributions() } else { Ok(it) });
        settings.map_err(|error| {
            let message = format!("label {}: {error}", outrigger_canary::LABEL);
            Failure::new(outrigger_core::Reason::CanaryInvalid, message)
        })
    }

    /// What the features of a version that is up looked like at its training.
    fn profile(&self, version: &ModelKey) -> Option<Arc<Profiled>> {
        self.live.get(version)?.routed()?.profile.clone()
    }

    /// Whether a version gives other scores every time.
    fn draws(&self, version: &ModelKey) -> bool {
        let routed = self.live.get(version).and_then(Live::routed);
        routed.is_some_and(|servable| !servable.plan.deterministic())
    }

    /// Names that look different because of a trial since the last time.
    pub(super) fn take_changed_trials(&mut self) -> BTreeSet<ModelName> {
        std::mem::take(&mut self.canaries.changed)
    }

    /// The arms of a tag that is answered by `answer`, if it is on trial and its
    /// canary is up.
    pub(super) fn arms(&self, key: &TagKey, answer: &Answer, now: Moment) -> Option<Arms> {
        let running = self.canaries.trials.get(key)?;
        let Answer::Ready(live, _) = answer else { return None };
        let canary = ModelKey { name: key.name.clone(), digest: running.pair.canary };
        if live.digest != running.pair.live {
            return None;
        }
        Some(Arms {
            route: self.ready(&canary, now)?,
            canary,
            share: running.trial.share(),
            trial: running.number,
        })
    }

    /// What those arms are for requests.
    pub(super) fn split(&self, key: &TagKey, live: &ModelKey, arms: &Arms) -> Option<Split> {
        let running = self.canaries.trials.get(key)?;
        Some(Split {
            live: self.live.get(live)?.routed()?,
            canary: self.live.get(&arms.canary)?.routed()?,
            share: arms.share,
            salt: Arc::clone(&running.salt),
            outcomes: Arc::clone(&running.outcomes),
            shadow: running.trial.settings().shadow,
            aside: self.aside.clone(),
        })
    }
}

impl Running {
    /// Has the trial know what requests have done.
    fn collect(&mut self, key: &TagKey, now: Moment) {
        let noted = self.outcomes.take();
        metrics::tried(&key.name, &noted);
        metrics::unpaired(&key.name, self.outcomes.take_unpaired());
        metrics::lost(self.outcomes.take_lost());
        for noted in noted {
            match noted {
                Noted::Outcome(share, observation) => {
                    self.trial.observe(share, &observation, now);
                }
                Noted::Pair(pair) => self.trial.observe_pair(&pair),
                Noted::Features(share, arm, categories) => {
                    self.trial.observe_features(share, arm, &categories);
                }
            }
        }
    }

    /// Where the features of an arm are farthest from its profile, the farthest
    /// first.
    fn deviations(&self, arm: Arm, most: usize) -> Vec<Deviation> {
        let profile = self.profiles[usize::from(arm == Arm::Canary)].as_ref();
        let (Some(profile), Some(seen)) = (profile, self.trial.statistics()) else {
            return Vec::new();
        };
        seen.deviations(arm, &profile.profile, most)
    }

    fn note_skew(&self, key: &TagKey) {
        for arm in [Arm::Live, Arm::Canary] {
            if let Some(farthest) = self.deviations(arm, 1).first() {
                metrics::skew(key, arm, farthest.size());
            }
        }
    }
}

/// Tells how much of its time the trial has used, and once that it starves.
fn note_time(key: &TagKey, running: &mut Running, end: Option<Conclusion>, now: Moment) {
    let (trial, maximum) = (&running.trial, running.trial.settings().judge.maximum_time);
    let ratio = trial.spent(now).as_secs_f64() / maximum.as_secs_f64();
    let said = trial.verdict().is_some_and(|verdict| verdict.decision == Decision::Starved);
    let given_up = matches!(
        end,
        Some(Conclusion::Promote(Cause::Starved) | Conclusion::Rollback(Cause::Starved))
    );
    let starving = given_up || !trial.is_promising() && (said || ratio >= 1.0);
    metrics::time_used(key, ratio, starving);
    if starving && !running.starved {
        running.starved = true;
        metrics::starved(&key.name);
        tracing::warn!(
            model.name = %key.name, model.tag = %key.tag, model.digest = %running.pair.canary,
            "the canary starves: it gets too few requests to be decided in time"
        );
    }
}

fn note_mismatch(key: &TagKey, running: &Running) {
    let Some(verdict) = running.trial.verdict() else { return };
    tracing::warn!(
        model.name = %key.name, model.tag = %key.tag, model.digest = %running.pair.canary,
        expected = verdict.sample_ratio.expected, seen = verdict.sample_ratio.seen,
        "the arms' sizes do not fit the canary's share: its comparison is not to be trusted"
    );
}
