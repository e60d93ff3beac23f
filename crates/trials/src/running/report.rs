//! Log lines and metrics of a trial.

use outrigger_canary::{Arm, Cause, Conclusion, Decision, Share};
use outrigger_core::Moment;

use super::Running;
use crate::{metrics, reports::Reports};

impl Running {
    /// Logs once when the sizes of the arms stop matching the share, and sets the metric for it.
    pub(super) fn report_sizes(&mut self) {
        let sample_ratio = self.trial.verdict().map(|verdict| &verdict.sample_ratio);
        let fits = sample_ratio.is_none_or(|it| it.fits);
        if let Some(ratio) = sample_ratio.filter(|_| self.fits && !fits) {
            tracing::warn!(
                model.name = %self.key.name, model.tag = %self.key.tag,
                model.digest = %self.pair.canary, expected = ratio.expected, seen = ratio.seen,
                "the arms' sizes do not fit the canary's share: it is not promoted while they do not"
            );
        }
        self.fits = fits;
        metrics::sizes_fit(&self.key, fits);
    }

    /// Logs and counts when the canary's requests stop because live is far worse, and logs when
    /// they go on.
    pub(super) fn report_held_back(&mut self, reports: &mut Reports) {
        let held_back = self.trial.is_held_back();
        if held_back == self.held_back {
            return;
        }
        self.held_back = held_back;
        let key = self.key.clone();
        let digest = self.pair.canary;
        reports.add(move || {
            metrics::held_back(&key, held_back);
            if held_back {
                metrics::paused(&key.name);
                tracing::warn!(
                    model.name = %key.name, model.tag = %key.tag, model.digest = %digest,
                    "live is far worse than before the split: it answers the canary's requests"
                );
            } else {
                tracing::info!(
                    model.name = %key.name, model.tag = %key.tag, model.digest = %digest,
                    "the canary gets requests again"
                );
            }
        });
    }

    pub(super) fn report_skew(&self) {
        for arm in [Arm::Live, Arm::Canary] {
            if let Some(farthest) = self.deviations(arm, 1).first() {
                metrics::skew(&self.key, arm, farthest.size());
            }
        }
    }

    /// Records the part of its time that the trial has used, and logs once if it starves.
    pub(super) fn report_time(&mut self, end: Option<Conclusion>, now: Moment) {
        let (trial, maximum) = (&self.trial, self.trial.settings().judge.maximum_time);
        let ratio = trial.spent(now).as_secs_f64() / maximum.as_secs_f64();
        let said = trial.verdict().is_some_and(|verdict| verdict.decision == Decision::Starved);
        let given_up =
            end.is_some_and(|end| matches!(end.cause(), Cause::Starved | Cause::ShareMismatch));
        let starving = given_up || !trial.is_promising() && (said || ratio >= 1.0);
        metrics::time_used(&self.key, ratio, starving);
        if starving && !self.starved {
            self.starved = true;
            metrics::starved(&self.key.name);
            tracing::warn!(
                model.name = %self.key.name, model.tag = %self.key.tag,
                model.digest = %self.pair.canary,
                "the canary starves: it cannot be decided in time"
            );
        }
    }

    /// Logs and records the share. Returns true if it differs from `before`.
    pub(super) fn report_share(&self, before: Option<Share>, reports: &mut Reports) -> bool {
        let share = self.trial.share();
        if share == before {
            return false;
        }
        let key = self.key.clone();
        let digest = self.pair.canary;
        reports.add(move || {
            metrics::share(&key, share);
            tracing::info!(
                model.name = %key.name, model.tag = %key.tag, model.digest = %digest,
                share = share.map_or(0.0, Share::probability),
                "the canary's share has changed"
            );
        });
        true
    }
}
