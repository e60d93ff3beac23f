//! The public view of canaries and of decisions about them.

use std::{collections::VecDeque, time::Duration, time::SystemTime};

use outrigger_canary::{
    Arm, Deviation, Finding, Trial, Verdict,
    statistics::{ArmStatistics, Comparison, Pairs},
};
use outrigger_core::{Digest, ModelName, Moment, Tag};
use serde::{Deserialize, Serialize};

/// The canaries of followed tags, and the decisions about canaries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Canaries {
    /// The canaries by model and live tag.
    pub canaries: Vec<CanaryView>,
    /// The decisions, latest first.
    pub decisions: VecDeque<CanaryDecision>,
}

/// The canary of a followed tag.
#[derive(Debug, Clone, PartialEq)]
pub struct CanaryView {
    /// The model.
    pub model: ModelName,
    /// The tag whose traffic is split.
    pub tag: Tag,
    /// The tag that names the canary.
    pub canary_tag: Tag,
    /// The version that answers for the tag; `None` if there is none yet.
    pub live: Option<Digest>,
    /// The canary.
    pub canary: Digest,
    /// The current phase.
    pub phase: CanaryPhase,
    /// More about the phase, if there is more to say.
    pub message: String,
    /// The canary's share of the traffic; 0 if it gets none.
    pub share: f64,
    /// The time on trial so far.
    pub elapsed: Duration,
    /// The last verdict; `None` before the split.
    pub verdict: Option<VerdictView>,
    /// The requests of live and of the canary; empty before the split.
    pub arms: Vec<ArmView>,
    /// The features of the arms whose models have a profile.
    pub features: Vec<(Arm, Comparison)>,
}

/// The short view of a tag's canary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TagCanaryView {
    /// The tag that names it.
    pub tag: Tag,
    /// The canary.
    pub digest: Digest,
    /// The current phase.
    pub phase: CanaryPhase,
    /// More about the phase, if there is more to say.
    pub message: String,
}

impl TagCanaryView {
    /// The short view of a canary.
    pub(crate) fn of(canary: &CanaryView) -> Self {
        Self {
            tag: canary.canary_tag.clone(),
            digest: canary.canary,
            phase: canary.phase,
            message: canary.message.clone(),
        }
    }
}

/// The requests of one arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmView {
    /// `live` or `canary`.
    pub arm: &'static str,
    /// Outcomes since the split.
    pub trial: FiguresView,
    /// Outcomes of about the last five minutes, limited to this process.
    pub lately: FiguresView,
}

/// Outcomes of requests during a period.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FiguresView {
    /// The number of requests.
    pub requests: u64,
    /// The number of requests without an answer.
    pub failed: u64,
    /// The number of answers with NaN or an infinity.
    pub non_finite: u64,
    /// The median latency in seconds; `None` without requests.
    pub latency_median: Option<f64>,
    /// The 95th percentile of the latency in seconds; `None` without requests.
    pub latency_p95: Option<f64>,
    /// The median of the scores, one per request; `None` without scores.
    pub score_median: Option<f64>,
}

impl ArmView {
    /// The requests of both arms of a trial; empty before the split.
    pub(crate) fn of(trial: &Trial, now: Moment) -> Vec<Self> {
        let (Some(seen), Some(lately)) = (trial.statistics(), trial.lately(now)) else {
            return Vec::new();
        };
        let arm = |arm: Arm, lately: &ArmStatistics| Self {
            arm: arm.as_str(),
            trial: FiguresView::from(&seen.arm(arm)),
            lately: FiguresView::from(lately),
        };
        vec![arm(Arm::Live, &lately.live), arm(Arm::Canary, &lately.canary)]
    }
}

impl From<&ArmStatistics> for FiguresView {
    fn from(arm: &ArmStatistics) -> Self {
        Self {
            requests: arm.requests(),
            failed: arm.failed(),
            non_finite: arm.non_finite(),
            latency_median: arm.latency().quantile(0.5),
            latency_p95: arm.latency().quantile(0.95),
            score_median: arm.scores().quantile(0.5),
        }
    }
}

/// The phase of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CanaryPhase {
    /// One of the two versions is not up, or the tag has no requests.
    Waiting,
    /// Only live is measured.
    WarmingUp,
    /// The traffic is split.
    Split,
    /// The canary is being promoted.
    Promoting,
    /// A person may promote the canary.
    Recommended,
    /// The canary is not tried.
    Rejected,
}

impl CanaryPhase {
    /// Every phase, in order.
    pub const ALL: [Self; 6] = [
        Self::Waiting,
        Self::WarmingUp,
        Self::Split,
        Self::Promoting,
        Self::Recommended,
        Self::Rejected,
    ];

    /// A stable lower-case name, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::WarmingUp => "warming_up",
            Self::Split => "split",
            Self::Promoting => "promoting",
            Self::Recommended => "recommended",
            Self::Rejected => "rejected",
        }
    }
}

/// A verdict in stored and public form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerdictView {
    /// `continue`, `promote`, `rollback` or `starved`.
    pub decision: String,
    /// The decision with its reason, in one line.
    pub summary: String,
    /// The number of requests assigned to live.
    pub live: u64,
    /// The number of requests assigned to the canary.
    pub canary: u64,
    /// The finding of each signal.
    pub findings: Vec<FindingView>,
    /// The canary's expected part of the requests, by the draw.
    pub expected_share: f64,
    /// The canary's counted part of the requests.
    pub seen_share: f64,
    /// True if chance explains the difference between the two shares.
    pub shares_fit: bool,
    /// The comparison of requests that both arms answered; `None` without any.
    #[serde(default)]
    pub shadowed: Option<ShadowedView>,
    /// The largest deviations of the arms' features from their profiles.
    #[serde(default)]
    pub deviations: Vec<DeviationView>,
}

/// A category of a feature's values, with its shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviationView {
    /// `live` or `canary`.
    pub arm: String,
    /// The feature and the category, as `channel: missing`.
    pub place: String,
    /// The category's share in the profile.
    pub expected: f64,
    /// The category's share in the examined requests.
    pub seen: f64,
    /// The number of examined requests.
    pub requests: u64,
}

impl DeviationView {
    pub(crate) fn new(arm: Arm, deviation: Deviation) -> Self {
        let Deviation { place, expected, seen, requests } = deviation;
        Self { arm: arm.as_str().to_owned(), place, expected, seen, requests }
    }
}

/// The comparison of requests that both arms answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowedView {
    /// The number of requests.
    pub requests: u64,
    /// The share of requests for which both arms rank the same treatment first.
    pub agreement: f64,
    /// The median of the canary's score minus live's, for the treatment that live ranks first.
    pub median: f64,
    /// The 5th percentile of that difference.
    pub lower: f64,
    /// The 95th percentile of that difference.
    pub upper: f64,
}

/// The finding of a signal. An unknown bound is the largest number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct FindingView {
    /// The signal's name, such as `error_rate`.
    pub signal: String,
    /// `open`, `harmless` or `harmful`.
    pub state: String,
    pub live: f64,
    pub canary: f64,
    pub difference: f64,
    pub lower: f64,
    pub upper: f64,
    pub tolerance: f64,
    pub margin: f64,
    #[serde(default)]
    pub detail: String,
}

impl VerdictView {
    /// The last verdict on a trial; `None` before the split.
    pub(crate) fn of(trial: &Trial, deviations: Vec<DeviationView>) -> Option<Self> {
        Some(Self::new(trial.verdict()?, trial.statistics()?.pairs(), deviations))
    }

    fn new(verdict: &Verdict, pairs: &Pairs, deviations: Vec<DeviationView>) -> Self {
        Self {
            decision: verdict.decision.to_string(),
            summary: verdict.to_string(),
            live: verdict.live,
            canary: verdict.canary,
            findings: verdict.findings.iter().map(FindingView::from).collect(),
            expected_share: verdict.sample_ratio.expected,
            seen_share: verdict.sample_ratio.seen,
            shares_fit: verdict.sample_ratio.fits,
            deviations,
            shadowed: (pairs.count() > 0).then(|| ShadowedView::from(pairs)),
        }
    }
}

impl From<&Pairs> for ShadowedView {
    fn from(pairs: &Pairs) -> Self {
        let difference = |quantile| pairs.differences().quantile(quantile).unwrap_or_default();
        Self {
            requests: pairs.count(),
            agreement: pairs.agreement(),
            median: difference(0.5),
            lower: difference(0.05),
            upper: difference(0.95),
        }
    }
}

impl From<&Finding> for FindingView {
    fn from(finding: &Finding) -> Self {
        // JSON has no infinity.
        let bounded = |number: f64| number.clamp(f64::MIN, f64::MAX);
        Self {
            signal: finding.signal.to_string().replace([' ', '-'], "_"),
            state: finding.state.to_string(),
            live: bounded(finding.live),
            canary: bounded(finding.canary),
            difference: bounded(finding.difference),
            lower: bounded(finding.lower),
            upper: bounded(finding.upper),
            tolerance: finding.tolerance,
            margin: finding.margin,
            detail: finding.detail.clone().unwrap_or_default(),
        }
    }
}

/// A decision about a canary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryDecision {
    /// The time of the decision.
    pub at: SystemTime,
    /// The model.
    pub model: ModelName,
    /// The tag whose traffic was split.
    pub tag: Tag,
    /// The version that answered for the tag; `None` if there was none.
    pub live: Option<Digest>,
    /// The canary.
    pub canary: Digest,
    /// The decision.
    pub outcome: CanaryOutcome,
    /// `judge`, `registry`, or the name of the person who decided.
    pub by: String,
    /// The reason.
    pub reason: String,
    /// The last verdict at that time; `None` before the split.
    pub verdict: Option<VerdictView>,
}

/// The outcome of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CanaryOutcome {
    /// The canary is live.
    Promoted,
    /// The canary was withdrawn.
    RolledBack,
    /// The canary may be promoted; the trial goes on.
    Recommended,
    /// The canary was not tried.
    Refused,
    /// One of the two tags has moved, or the canary's tag is gone.
    Superseded,
}

impl CanaryOutcome {
    /// Every outcome.
    pub const ALL: [Self; 5] =
        [Self::Promoted, Self::RolledBack, Self::Recommended, Self::Refused, Self::Superseded];

    /// A stable lower-case name, for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Promoted => "promoted",
            Self::RolledBack => "rolled_back",
            Self::Recommended => "recommended",
            Self::Refused => "refused",
            Self::Superseded => "superseded",
        }
    }
}

/// A decision by a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Promote the canary in the place that its mode names.
    Promote,
    /// Roll the canary back.
    Abort,
}

/// The author of a decision, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// The author's name.
    pub who: String,
    /// The reason, for the record.
    pub why: String,
}

impl By {
    /// Creates an entry for the judge, with that reason.
    pub(crate) fn judge(why: impl Into<String>) -> Self {
        Self { who: "judge".to_owned(), why: why.into() }
    }

    /// Creates an entry for a change in the registry, with that reason.
    pub(crate) fn registry(why: impl Into<String>) -> Self {
        Self { who: "registry".to_owned(), why: why.into() }
    }
}
