//! Canaries in the form of `outrigger.v1`.

use outrigger_canary::{Entity, statistics::ComparedFeature};
use outrigger_core::{Arm, Digest};
use outrigger_lifecycle::{
    ArmView, Canaries, CanaryDecision, CanaryOutcome, CanaryPhase, CanaryView, DeviationView,
    FiguresView, FindingView, ShadowedView, VerdictView,
};
use outrigger_proto::outrigger::v1::{
    self as wire, Canary, CanaryVerdict, ListCanariesResponse,
    canary::{self, Category, Feature, Figures, Phase},
    canary_decision::Outcome,
    canary_verdict::{Deviation, Finding, Shadowed},
};
use prost_types::{Duration, Timestamp};

/// Lists the canaries of `model` with all of their features. An empty `model` lists all canaries,
/// without features.
pub(crate) fn list(canaries: &Canaries, model: &str) -> ListCanariesResponse {
    let wanted = |name: &str| model.is_empty() || model == name;
    let decisions = canaries.decisions.iter().filter(|it| wanted(it.model.as_str()));
    let canaries = canaries.canaries.iter().filter(|it| wanted(it.model.as_str()));
    ListCanariesResponse {
        canaries: canaries.map(|view| canary(view, !model.is_empty())).collect(),
        decisions: decisions.map(decision).collect(),
    }
}

fn canary(view: &CanaryView, with_features: bool) -> Canary {
    let compared = view.features.iter().filter(|_| with_features);
    let features = compared.flat_map(|(arm, compared)| {
        compared.features().map(move |compared| feature(*arm, compared))
    });
    Canary {
        model: view.model.to_string(),
        tag: view.tag.to_string(),
        canary_tag: view.canary_tag.to_string(),
        live_digest: digest(view.live),
        canary_digest: view.canary.to_string(),
        phase: phase(view.phase).into(),
        message: view.message.clone(),
        share: view.share,
        // The conversion fails only for durations longer than any trial.
        elapsed: Duration::try_from(view.elapsed).ok(),
        verdict: view.verdict.as_ref().map(verdict),
        features: features.collect(),
        arms: view.arms.iter().map(arm).collect(),
    }
}

fn arm(view: &ArmView) -> canary::Arm {
    canary::Arm {
        arm: view.arm.to_owned(),
        trial: Some(figures(&view.trial)),
        lately: Some(figures(&view.lately)),
    }
}

fn figures(view: &FiguresView) -> Figures {
    Figures {
        requests: view.requests,
        failed: view.failed,
        non_finite: view.non_finite,
        latency_median: view.latency_median,
        latency_p95: view.latency_p95,
        score_median: view.score_median,
    }
}

fn feature(arm: Arm, compared: ComparedFeature) -> Feature {
    let entity = match compared.entity {
        Entity::User => "user",
        Entity::Treatment => "treatment",
    };
    let categories = compared.categories.into_iter().map(|it| Category {
        name: it.name,
        expected: it.expected,
        seen: it.seen,
    });
    Feature {
        arm: arm.as_str().to_owned(),
        name: compared.name,
        entity: entity.to_owned(),
        requests: compared.requests,
        categories: categories.collect(),
    }
}

fn digest(digest: Option<Digest>) -> String {
    digest.map(|digest| digest.to_string()).unwrap_or_default()
}

pub(crate) fn phase(phase: CanaryPhase) -> Phase {
    match phase {
        CanaryPhase::Waiting => Phase::Waiting,
        CanaryPhase::WarmingUp => Phase::WarmingUp,
        CanaryPhase::Split => Phase::Split,
        CanaryPhase::Promoting => Phase::Promoting,
        CanaryPhase::Recommended => Phase::Recommended,
        CanaryPhase::Rejected => Phase::Rejected,
    }
}

fn verdict(view: &VerdictView) -> CanaryVerdict {
    CanaryVerdict {
        decision: view.decision.clone(),
        summary: view.summary.clone(),
        live_requests: view.live,
        canary_requests: view.canary,
        findings: view.findings.iter().map(finding).collect(),
        expected_share: view.expected_share,
        seen_share: view.seen_share,
        shares_fit: view.shares_fit,
        shadowed: view.shadowed.as_ref().map(shadowed),
        deviations: view.deviations.iter().map(deviation).collect(),
    }
}

fn deviation(view: &DeviationView) -> Deviation {
    Deviation {
        arm: view.arm.clone(),
        place: view.place.clone(),
        expected: view.expected,
        seen: view.seen,
        requests: view.requests,
    }
}

fn shadowed(view: &ShadowedView) -> Shadowed {
    Shadowed {
        requests: view.requests,
        agreement: view.agreement,
        median: view.median,
        lower: view.lower,
        upper: view.upper,
    }
}

fn finding(view: &FindingView) -> Finding {
    Finding {
        signal: view.signal.clone(),
        state: view.state.clone(),
        live: view.live,
        canary: view.canary,
        difference: view.difference,
        lower: view.lower,
        upper: view.upper,
        tolerance: view.tolerance,
        margin: view.margin,
        detail: view.detail.clone(),
    }
}

fn decision(decision: &CanaryDecision) -> wire::CanaryDecision {
    wire::CanaryDecision {
        at: Some(Timestamp::from(decision.at)),
        model: decision.model.to_string(),
        tag: decision.tag.to_string(),
        live_digest: digest(decision.live),
        canary_digest: decision.canary.to_string(),
        outcome: outcome(decision.outcome).into(),
        by: decision.by.clone(),
        reason: decision.reason.clone(),
        verdict: decision.verdict.as_ref().map(verdict),
    }
}

fn outcome(outcome: CanaryOutcome) -> Outcome {
    match outcome {
        CanaryOutcome::Promoted => Outcome::Promoted,
        CanaryOutcome::RolledBack => Outcome::RolledBack,
        CanaryOutcome::Recommended => Outcome::Recommended,
        CanaryOutcome::Refused => Outcome::Refused,
        CanaryOutcome::Superseded => Outcome::Superseded,
    }
}
