//! Formats canaries as text.

use std::fmt::Write as _;

use outrigger_proto::outrigger::v1::{
    Canary, CanaryDecision, CanaryVerdict, ListCanariesResponse,
    canary::{Arm, Figures, Phase},
    canary_decision::Outcome,
    canary_verdict::{Deviation, Shadowed},
};

use crate::{
    models::render::{age, short},
    output::Table,
};

/// Maximum number of decisions that are printed.
const DECISIONS: usize = 10;

/// The canaries on trial with their figures, and recent decisions.
pub fn status(canaries: &ListCanariesResponse) -> String {
    let mut text = String::new();
    if canaries.canaries.is_empty() {
        text.push_str("no tag has a canary\n");
    }
    for canary in &canaries.canaries {
        canary_lines(&mut text, canary).expect("writing to a string");
    }
    if !canaries.decisions.is_empty() {
        text.push_str("\ndecided:\n");
    }
    for decision in canaries.decisions.iter().take(DECISIONS) {
        decision_line(&mut text, decision).expect("writing to a string");
    }
    text
}

fn canary_lines(text: &mut String, canary: &Canary) -> std::fmt::Result {
    let Canary { model, tag, canary_tag, .. } = canary;
    let phase = phase(canary.phase());
    let (live, digest) = (short(&canary.live_digest), short(&canary.canary_digest));
    writeln!(text, "{model}:{tag}  {phase}  {canary_tag} {digest} against {live}")?;
    if !canary.message.is_empty() {
        writeln!(text, "  {}", canary.message)?;
    }
    let seconds = canary.elapsed.as_ref().map_or(0, |elapsed| elapsed.seconds);
    if seconds > 0 {
        let elapsed = humantime::format_duration(std::time::Duration::from_secs(
            u64::try_from(seconds).unwrap_or_default(),
        ));
        writeln!(text, "  {:.1}% of the traffic, on trial for {elapsed}", 100.0 * canary.share)?;
    }
    arm_lines(text, &canary.arms)?;
    canary.verdict.iter().try_for_each(|verdict| verdict_lines(text, verdict))
}

fn arm_lines(text: &mut String, arms: &[Arm]) -> std::fmt::Result {
    if arms.is_empty() {
        return Ok(());
    }
    let mut table =
        Table::new(&["ARM", "SINCE", "REQUESTS", "FAILED", "NAN", "LATENCY", "95TH", "SCORE"]);
    for it in arms {
        let figures = [("the split", &it.trial), ("5 minutes", &it.lately)];
        for (since, figures) in figures {
            let figures = figures.iter().flat_map(figure_cells);
            table.row([it.arm.clone(), since.to_owned()].into_iter().chain(figures));
        }
    }
    table.to_string().lines().try_for_each(|line| writeln!(text, "    {line}"))
}

fn figure_cells(figures: &Figures) -> [String; 6] {
    let counts = [figures.requests, figures.failed, figures.non_finite];
    let [requests, failed, non_finite] = counts.map(|count| count.to_string());
    let [median, p95] = [figures.latency_median, figures.latency_p95]
        .map(|seconds| known(seconds, |seconds| format!("{:.1}ms", 1e3 * seconds)));
    [requests, failed, non_finite, median, p95, known(figures.score_median, figure)]
}

fn known(value: Option<f64>, written: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), written)
}

fn verdict_lines(text: &mut String, verdict: &CanaryVerdict) -> std::fmt::Result {
    let CanaryVerdict { live_requests, canary_requests, .. } = verdict;
    writeln!(text, "  {live_requests} requests on live, {canary_requests} on the canary")?;
    if !verdict.shares_fit {
        let (seen, expected) = (100.0 * verdict.seen_share, 100.0 * verdict.expected_share);
        writeln!(text, "  the canary's part is {seen:.2}%, not {expected:.2}%: do not trust this")?;
    }
    let mut table =
        Table::new(&["SIGNAL", "STATE", "LIVE", "CANARY", "DIFFERENCE", "FROM", "TO", "MARGIN"]);
    for it in &verdict.findings {
        let figures = [it.live, it.canary, it.difference, it.lower, it.upper, it.margin];
        let figures = figures.map(figure);
        table.row([it.signal.clone(), it.state.clone()].into_iter().chain(figures));
    }
    table.to_string().lines().try_for_each(|line| writeln!(text, "    {line}"))?;
    verdict.shadowed.iter().try_for_each(|shadowed| shadowed_line(text, shadowed))?;
    verdict.deviations.iter().try_for_each(|deviation| deviation_line(text, deviation))
}

fn deviation_line(text: &mut String, deviation: &Deviation) -> std::fmt::Result {
    let Deviation { arm, place, expected, seen, requests } = deviation;
    let (seen, expected) = (100.0 * seen, 100.0 * expected);
    writeln!(
        text,
        "  {arm}: {place} in {seen:.1}% of {requests} requests, {expected:.1}% at its training"
    )
}

fn shadowed_line(text: &mut String, shadowed: &Shadowed) -> std::fmt::Result {
    let Shadowed { requests, agreement, median, lower, upper } = shadowed;
    let agreement = 100.0 * agreement;
    writeln!(
        text,
        "  {requests} requests on both: the same treatment first in {agreement:.1}%, scores differ \
         by {median:+.4} (of 90 in 100, {lower:+.4} to {upper:+.4})"
    )
}

/// Four decimal places; an unknown value is a question mark.
fn figure(figure: f64) -> String {
    if figure.abs() >= f64::MAX { "?".to_owned() } else { format!("{figure:.4}") }
}

fn decision_line(text: &mut String, decision: &CanaryDecision) -> std::fmt::Result {
    let at = decision.at.as_ref().map(age).unwrap_or_default();
    let CanaryDecision { model, tag, by, reason, .. } = decision;
    let outcome = outcome(decision.outcome());
    let digest = short(&decision.canary_digest);
    writeln!(text, "  {at:>8} ago  {model}:{tag} {digest} {outcome} by {by}: {reason}")
}

pub(crate) fn phase(phase: Phase) -> &'static str {
    phase.as_str_name().trim_start_matches("PHASE_")
}

fn outcome(outcome: Outcome) -> &'static str {
    outcome.as_str_name().trim_start_matches("OUTCOME_")
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::canary_verdict::Finding;

    use super::*;

    #[test]
    fn the_status_shows_the_figures_and_who_decided() {
        let finding = Finding {
            signal: "error_rate".to_owned(),
            state: "open".to_owned(),
            live: 0.01,
            canary: 0.0125,
            upper: f64::MAX,
            ..Finding::default()
        };
        let verdict = CanaryVerdict {
            findings: vec![finding],
            canary_requests: 120,
            deviations: vec![Deviation {
                arm: "canary".to_owned(),
                place: "channel: missing".to_owned(),
                seen: 0.4,
                ..Deviation::default()
            }],
            shadowed: Some(Shadowed { requests: 80, agreement: 0.975, ..Shadowed::default() }),
            shares_fit: true,
            ..CanaryVerdict::default()
        };
        let canary = Canary {
            model: "churn".to_owned(),
            tag: "latest".to_owned(),
            phase: Phase::Split.into(),
            verdict: Some(verdict),
            arms: vec![Arm {
                arm: "canary".to_owned(),
                trial: Some(Figures { requests: 120, ..Figures::default() }),
                lately: Some(Figures {
                    requests: 45,
                    failed: 2,
                    latency_p95: Some(0.0605),
                    score_median: Some(0.41),
                    ..Figures::default()
                }),
            }],
            ..Canary::default()
        };
        let decision = CanaryDecision {
            outcome: Outcome::RolledBack.into(),
            by: "ada".to_owned(),
            reason: "a hunch".to_owned(),
            ..CanaryDecision::default()
        };
        let text =
            status(&ListCanariesResponse { canaries: vec![canary], decisions: vec![decision] });
        for part in [
            "churn:latest  SPLIT",
            "120 on the canary",
            "error_rate",
            "0.0125",
            "?",
            "97.5%",
            "channel: missing in 40.0%",
            "canary  5 minutes  45        2       0    -        60.5ms  0.4100",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.contains("ROLLED_BACK by ada: a hunch"), "{text}");
        assert!(!text.contains("do not trust"), "{text}");
    }
}
