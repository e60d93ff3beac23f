//! Canaries as others see them.

use std::{collections::BTreeSet, sync::Arc};

use outrigger_canary::{Arm, Share, Trial, statistics::Comparison};
use outrigger_core::{
    Digest, ModelKey, Moment,
    fleet::{Answer, TagKey},
    model::ModelMachine,
};

use super::{PERIOD, Pair, Promotion, Running};
use crate::{
    canaries::{
        ArmView, Canaries, CanaryOutcome, CanaryPhase, CanaryView, DeviationView, VerdictView,
    },
    metrics,
    service::Service,
    snapshot::TagCanaryView,
};

impl Service {
    /// Shows what has changed, and keeps what has to survive us.
    pub(in crate::service) fn show_canaries(&mut self, now: Moment) {
        let named = self.fleet.tags().filter_map(|(key, tag)| {
            let (canary_tag, canary) = self.fleet.canary(key)?;
            let live = tag.serving();
            (live != Some(canary)).then(|| self.canary_view(key, live, canary_tag, canary, now))
        });
        let mut canaries: Vec<_> = named.collect();
        // Where nobody asks, time changes nothing.
        let nothing = self.canaries.trials.is_empty() && canaries.is_empty();
        canaries.extend(self.idle_views(now));
        canaries.sort_by(|a, b| (&a.model, &a.tag).cmp(&(&b.model, &b.tag)));
        let decisions = self.canaries.decisions.clone();
        let shown = Arc::new(Canaries { canaries, decisions });
        metrics::canaries(&shown.canaries);
        let last = self.canaries.shown.borrow().clone();
        self.note_phases(&last, &shown);
        if last != shown {
            self.canaries.shown.send_replace(shown);
        }
        self.canaries.judge_at = match self.canaries.judge_at {
            _ if nothing => None,
            Some(at) if at > now => Some(at),
            _ => Some(now + PERIOD),
        };
        self.keep_canaries(now);
    }

    /// What was shown last of a tag's canary.
    pub(in crate::service) fn canary_of(&self, key: &TagKey) -> Option<TagCanaryView> {
        let shown = self.canaries.shown.borrow();
        let mut canaries = shown.canaries.iter();
        let canary = canaries.find(|it| (&it.model, &it.tag) == (&key.name, &key.tag));
        canary.map(TagCanaryView::of)
    }

    /// The models whose canaries have come further look different as well.
    fn note_phases(&mut self, last: &Canaries, shown: &Canaries) {
        let phases = |of: &Canaries| -> BTreeSet<_> {
            let canaries = of.canaries.iter();
            canaries.map(|it| (it.model.clone(), it.tag.clone(), TagCanaryView::of(it))).collect()
        };
        let (last, shown) = (phases(last), phases(shown));
        let changed = last.symmetric_difference(&shown);
        self.canaries.changed.extend(changed.map(|(model, ..)| model.clone()));
    }

    fn canary_view(
        &self,
        key: &TagKey,
        live: Option<Digest>,
        canary_tag: &TagKey,
        canary: Digest,
        now: Moment,
    ) -> CanaryView {
        let running = self.canaries.trials.get(key).filter(|it| it.pair.canary == canary);
        let standstill = running.and_then(|running| self.standstill(key, running, now));
        let (phase, message) = match running {
            Some(running) => phase(running, standstill.as_deref()),
            None => self.untried(key, canary_tag, canary, now),
        };
        let trial = running.map(|running| &running.trial);
        let waiting = self.canaries.unfinished.get(key).filter(|it| it.pair.canary == canary);
        let spent = trial.map(|trial| trial.spent(now));
        let share = trial.filter(|_| standstill.is_none()).and_then(Trial::share);
        CanaryView {
            model: key.name.clone(),
            tag: key.tag.clone(),
            canary_tag: canary_tag.tag.clone(),
            live,
            canary,
            phase,
            message,
            share: share.map_or(0.0, Share::probability),
            elapsed: spent.or(waiting.map(|it| it.progress.spent())).unwrap_or_default(),
            verdict: running.and_then(Running::verdict),
            arms: trial.map(|trial| ArmView::of(trial, now)).unwrap_or_default(),
            features: running.map(Running::features).unwrap_or_default(),
        }
    }

    /// Why a canary is not on trial.
    fn untried(
        &self,
        key: &TagKey,
        canary_tag: &TagKey,
        canary: Digest,
        now: Moment,
    ) -> (CanaryPhase, String) {
        let rejected = self.fleet.tag(canary_tag).and_then(|tag| tag.rejected());
        if rejected == Some(canary) {
            let mut decisions = self.canaries.decisions.iter();
            let decision = decisions.find(|it| {
                let for_good = matches!(
                    it.outcome,
                    CanaryOutcome::RolledBack | CanaryOutcome::Refused | CanaryOutcome::Promoted
                );
                for_good && it.model == key.name && it.canary == canary
            });
            let message = match decision.filter(|it| it.outcome != CanaryOutcome::Promoted) {
                Some(decision) => format!("{}: {}", decision.by, decision.reason),
                None => "it has been live before".to_owned(),
            };
            return (CanaryPhase::Rejected, message);
        }
        let message = self.not_up(key, "the canary", canary, now);
        let message = message.unwrap_or_else(|| "nothing answers for the tag yet".to_owned());
        (CanaryPhase::Waiting, message)
    }

    /// Why a trial that has begun gets no requests; `None`: it does.
    fn standstill(&self, key: &TagKey, running: &Running, now: Moment) -> Option<String> {
        let Pair { live, canary } = running.pair;
        let not_up = |what, digest| self.not_up(key, what, digest, now);
        not_up("live", live).or_else(|| not_up("the canary", canary))
    }

    /// Why a version of a model is not up; `None`: it is.
    fn not_up(&self, key: &TagKey, what: &str, digest: Digest, now: Moment) -> Option<String> {
        let version = ModelKey { name: key.name.clone(), digest };
        if self.fleet.model(&version).is_some_and(ModelMachine::is_suspended) {
            return Some(format!("{what} was unloaded by hand"));
        }
        match self.fleet.answer_digest(&version, now) {
            Answer::Waiting(Some(failure))
            | Answer::Retrying(failure, _)
            | Answer::Refused(failure) => Some(format!("{what} is not up: {failure}")),
            Answer::Waiting(None) => Some(format!("{what} is being brought up")),
            Answer::Ready(..) => None,
        }
    }

    /// The trials that wait for somebody to ask for their tags.
    fn idle_views(&self, now: Moment) -> impl Iterator<Item = CanaryView> {
        self.canaries.unfinished.iter().filter_map(move |(key, waiting)| {
            let tag = self.fleet.tag(key).filter(|it| !it.is_followed(self.fleet.policy(), now))?;
            let canary_tag = self.fleet.canary_tag(key, waiting.pair.canary)?;
            Some(CanaryView {
                model: key.name.clone(),
                tag: key.tag.clone(),
                canary_tag: canary_tag.tag,
                live: tag.serving(),
                canary: waiting.pair.canary,
                phase: CanaryPhase::Waiting,
                message: format!(
                    "nobody asks for {}:{}: its trial goes on with the next request",
                    key.name, key.tag
                ),
                share: 0.0,
                elapsed: waiting.progress.spent(),
                verdict: None,
                arms: Vec::new(),
                features: Vec::new(),
            })
        })
    }
}

/// Deviations that are shown of each arm.
const DEVIATIONS: usize = 3;

impl Running {
    /// What the judge said last; `None` before the split.
    pub(super) fn verdict(&self) -> Option<VerdictView> {
        let deviations = [Arm::Live, Arm::Canary].into_iter().flat_map(|arm| {
            let found = self.deviations(arm, DEVIATIONS).into_iter();
            found.map(move |deviation| DeviationView::new(arm, deviation))
        });
        VerdictView::of(&self.trial, deviations.collect())
    }

    /// The features of the arms whose models have a profile.
    fn features(&self) -> Vec<(Arm, Comparison)> {
        let Some(seen) = self.trial.statistics() else { return Vec::new() };
        let compared = [Arm::Live, Arm::Canary].into_iter().zip(&self.profiles);
        let compared = compared.filter_map(|(arm, profiled)| {
            let profile = Arc::clone(&profiled.as_ref()?.profile);
            Some((arm, seen.compare(arm, profile)))
        });
        compared.collect()
    }
}

/// The phase of a canary on trial, which may be at a standstill.
fn phase(running: &Running, standstill: Option<&str>) -> (CanaryPhase, String) {
    let phase = match &running.promotion {
        Promotion::Undecided if standstill.is_some() => CanaryPhase::Waiting,
        Promotion::Undecided if running.trial.share().is_none() => CanaryPhase::WarmingUp,
        Promotion::Undecided => CanaryPhase::Split,
        Promotion::Recommended => CanaryPhase::Recommended,
        Promotion::Running(_)
        | Promotion::Told { .. }
        | Promotion::Overtaken(_)
        | Promotion::Failed { .. } => CanaryPhase::Promoting,
    };
    let message = match &running.promotion {
        Promotion::Failed { failure, .. } => failure.to_string(),
        Promotion::Overtaken(_) => "the tag has moved in the meantime".to_owned(),
        _ => standstill.unwrap_or_default().to_owned(),
    };
    (phase, message)
}
