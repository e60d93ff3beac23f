//! Canaries as others see them.

use std::{sync::Arc, time::Duration};

use outrigger_canary::{Arm, Share, statistics::Comparison};
use outrigger_core::{
    Digest, ModelKey, Moment,
    fleet::{Answer, TagKey},
};

use super::{PERIOD, Promotion, Running};
use crate::{
    canaries::{
        ArmView, Canaries, CanaryOutcome, CanaryPhase, CanaryView, DeviationView, VerdictView,
    },
    metrics,
    service::Service,
};

impl Service {
    /// Shows what has changed, and keeps what has to survive us.
    pub(in crate::service) fn show_canaries(&mut self, now: Moment) {
        let named = self.fleet.tags().filter_map(|(key, tag)| {
            let (canary_tag, canary) = self.fleet.canary(key)?;
            let live = tag.serving();
            (live != Some(canary)).then(|| self.canary_view(key, live, canary_tag, canary, now))
        });
        let decisions = self.canaries.decisions.clone();
        let shown = Arc::new(Canaries { canaries: named.collect(), decisions });
        metrics::canaries(&shown.canaries);
        self.canaries.shown.send_if_modified(|last| {
            let changed = *last != shown;
            last.clone_from(&shown);
            changed
        });
        let nothing = self.canaries.trials.is_empty() && shown.canaries.is_empty();
        self.canaries.judge_at = match self.canaries.judge_at {
            _ if nothing => None,
            Some(at) if at > now => Some(at),
            _ => Some(now + PERIOD),
        };
        self.keep_canaries(now);
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
        let (phase, message) = match running {
            Some(running) => phase(running),
            None => self.untried(key, canary_tag, canary, now),
        };
        let trial = running.map(|running| &running.trial);
        CanaryView {
            model: key.name.clone(),
            tag: key.tag.clone(),
            canary_tag: canary_tag.tag.clone(),
            live,
            canary,
            phase,
            message,
            share: trial.and_then(|it| it.share()).map_or(0.0, Share::probability),
            elapsed: trial.map_or(Duration::ZERO, |trial| trial.spent(now)),
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
        let version = ModelKey { name: key.name.clone(), digest: canary };
        let message = match self.fleet.answer_digest(&version, now) {
            Answer::Waiting(Some(failure))
            | Answer::Retrying(failure, _)
            | Answer::Refused(failure) => failure.to_string(),
            Answer::Waiting(None) => "the canary is being brought up".to_owned(),
            Answer::Ready(..) => "nothing answers for the tag yet".to_owned(),
        };
        (CanaryPhase::Waiting, message)
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

/// The phase of a canary on trial.
fn phase(running: &Running) -> (CanaryPhase, String) {
    let phase = match &running.promotion {
        Promotion::Undecided if running.trial.share().is_none() => CanaryPhase::WarmingUp,
        Promotion::Undecided => CanaryPhase::Split,
        Promotion::Recommended => CanaryPhase::Recommended,
        Promotion::Running(_)
        | Promotion::Told(_)
        | Promotion::Overtaken(_)
        | Promotion::Failed { .. } => CanaryPhase::Promoting,
    };
    let message = match &running.promotion {
        Promotion::Failed { failure, .. } => failure.to_string(),
        Promotion::Overtaken(_) => "the tag has moved in the meantime".to_owned(),
        _ => String::new(),
    };
    (phase, message)
}
