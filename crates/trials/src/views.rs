//! Canaries as they are shown, and decisions about them.

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
    /// By model and live tag.
    pub canaries: Vec<CanaryView>,
    /// The latest first.
    pub decisions: VecDeque<CanaryDecision>,
}

/// The canary of a followed tag.
#[derive(Debug, Clone, PartialEq)]
pub struct CanaryView {
    /// The model.
    pub model: ModelName,
    /// The tag that is split.
    pub tag: Tag,
    /// The tag that names the canary.
    pub canary_tag: Tag,
    /// The version that answers for the tag; `None`: none yet.
    pub live: Option<Digest>,
    /// The canary.
    pub canary: Digest,
    /// How far it has come.
    pub phase: CanaryPhase,
    /// Why it is there, where there is more to say.
    pub message: String,
    /// Its share of the traffic; 0: none.
    pub share: f64,
    /// How long it has been on trial.
    pub elapsed: Duration,
    /// The last verdict; `None` before the split.
    pub verdict: Option<VerdictView>,
    /// The requests of live and of the canary; empty before the split.
    pub arms: Vec<ArmView>,
    /// The features of the arms whose models have a profile.
    pub features: Vec<(Arm, Comparison)>,
}

/// The canary of a tag, in short.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TagCanaryView {
    /// The tag that names it.
    pub tag: Tag,
    /// The canary.
    pub digest: Digest,
    /// How far it has come.
    pub phase: CanaryPhase,
    /// Why it is there, where there is more to say.
    pub message: String,
}

impl TagCanaryView {
    /// A canary in short.
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
    /// Since the split.
    pub trial: FiguresView,
    /// In about the last five minutes, since this process began at most.
    pub lately: FiguresView,
}

/// Outcomes of requests during some time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FiguresView {
    /// The number of requests.
    pub requests: u64,
    /// Those that were not answered.
    pub failed: u64,
    /// Those that were answered with NaN or an infinity.
    pub non_finite: u64,
    /// Seconds that half of them did not exceed; `None` without any.
    pub latency_median: Option<f64>,
    /// Seconds that 95 of 100 did not exceed.
    pub latency_p95: Option<f64>,
    /// The median of the scores, one a request; `None` without any.
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

/// How far a canary has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CanaryPhase {
    /// One of the two versions is not up, or nobody asks for the tag.
    Waiting,
    /// Live alone is measured.
    WarmingUp,
    /// The traffic is split.
    Split,
    /// It is to be promoted.
    Promoting,
    /// It may be promoted.
    Recommended,
    /// It is not tried.
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

/// A verdict, as it is kept and shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerdictView {
    /// `continue`, `promote`, `rollback` or `starved`.
    pub decision: String,
    /// The same with its reason, in a line.
    pub summary: String,
    /// Requests that live was assigned.
    pub live: u64,
    /// Requests that the canary was assigned.
    pub canary: u64,
    /// The finding of each signal.
    pub findings: Vec<FindingView>,
    /// The canary's part of the requests, as drawn.
    pub expected_share: f64,
    /// And as counted.
    pub seen_share: f64,
    /// Whether that can be chance.
    pub shares_fit: bool,
    /// Requests that both arms answered; `None` without any.
    #[serde(default)]
    pub shadowed: Option<ShadowedView>,
    /// Where the features of the arms are farthest from their profiles.
    #[serde(default)]
    pub deviations: Vec<DeviationView>,
}

/// A category of a feature's values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviationView {
    /// `live` or `canary`.
    pub arm: String,
    /// The feature and the category, as `channel: missing`.
    pub place: String,
    /// Its share in the profile.
    pub expected: f64,
    /// Its share in the requests that were looked at.
    pub seen: f64,
    /// The number of those requests.
    pub requests: u64,
}

impl DeviationView {
    pub(crate) fn new(arm: Arm, deviation: Deviation) -> Self {
        let Deviation { place, expected, seen, requests } = deviation;
        Self { arm: arm.as_str().to_owned(), place, expected, seen, requests }
    }
}

/// Requests that both arms answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowedView {
    /// The number of requests.
    pub requests: u64,
    /// The share of them for which both put the same treatment first.
    pub agreement: f64,
    /// The median of the canary's score less live's, for the treatment that live puts
    /// first.
    pub median: f64,
    /// The difference that 5 of 100 requests do not exceed.
    pub lower: f64,
    /// The difference that 95 of 100 requests do not exceed.
    pub upper: f64,
}

/// The finding of a signal. A bound of which nothing is known is the largest number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct FindingView {
    /// Its name, as `error_rate`.
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
    /// When.
    pub at: SystemTime,
    /// The model.
    pub model: ModelName,
    /// The tag that was split.
    pub tag: Tag,
    /// The version that answered for it; `None`: none.
    pub live: Option<Digest>,
    /// The canary.
    pub canary: Digest,
    /// The decision.
    pub outcome: CanaryOutcome,
    /// `judge`, `registry`, or the name of the person who decided.
    pub by: String,
    /// Why.
    pub reason: String,
    /// The last verdict at that time; `None` before the split.
    pub verdict: Option<VerdictView>,
}

/// The outcome of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CanaryOutcome {
    /// It is live.
    Promoted,
    /// It is gone.
    RolledBack,
    /// It may be live: not the end yet.
    Recommended,
    /// It was not tried.
    Refused,
    /// One of the two tags has moved on, or the canary's is gone.
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

/// A decision by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It becomes live, as its mode says.
    Promote,
    /// It is rolled back.
    Abort,
}

/// The author of a decision, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// A name.
    pub who: String,
    /// For the record.
    pub why: String,
}

impl By {
    /// The judge, for that reason.
    pub(crate) fn judge(why: impl Into<String>) -> Self {
        Self { who: "judge".to_owned(), why: why.into() }
    }

    /// A change in the registry, for that reason.
    pub(crate) fn registry(why: impl Into<String>) -> Self {
        Self { who: "registry".to_owned(), why: why.into() }
    }
}
