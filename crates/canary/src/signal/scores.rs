//! The distribution of the scores: how far the canary's lies from live's.

use std::f64::consts::LN_2;

use outrigger_core::Arm;

use super::{Difference, Needed, Test};
use crate::{
    Statistics,
    evidence::{
        Side, bound,
        events::{self, Table, Tally},
        mixture::Prior,
        rank::{self, Ranks},
    },
    reference::BINS,
    statistics::Measured,
};

/// The distribution of the scores, by its Kolmogorov-Smirnov distance from
/// live's, over the edges of the reference's bins.
///
/// Two tests bound it from below. The one compares the shares at or below each
/// edge, and sees any change of shape. The other compares the mean ranks, as
/// Mann & Whitney do; since their difference is an average of the differences
/// at the edges, it bounds the largest one too, and sees a shift with fewer
/// requests.
#[derive(Debug)]
pub(super) struct Scores;

/// What the mean ranks need beside the signal's evidence: they have 3/4 of its
/// budget, for two sides.
const FOR_RANKS: f64 = LN_2 + 0.287_682_072_451_780_9;

/// Evidence is only worked out when its expectation is this near to what is
/// needed. Not to look is always allowed.
const NEAR: f64 = 0.7;

impl Test for Scores {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        let for_ranks = needed + FOR_RANKS;
        let (shift, expected) = rank::estimate(ranks(statistics));
        let side = towards(shift);
        if expected >= NEAR * for_ranks
            && rank::log_evidence(ranks(statistics), side, side.sign() * tolerance) >= for_ranks
        {
            return true;
        }
        let for_edges = needed + for_edges(statistics);
        estimates(statistics).any(|(edge, difference, expected)| {
            let side = towards(difference);
            expected >= NEAR * for_edges
                && evidence(statistics, edge, side, side.sign() * tolerance) >= for_edges
        })
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        // Without a bin to compare nothing is proved.
        edges(statistics) > 0
            && estimates(statistics).all(|(_, difference, _)| difference.abs() < margin)
            && estimates(statistics).all(|(edge, ..)| {
                evidence(statistics, edge, Side::Less, margin) >= needed
                    && evidence(statistics, edge, Side::More, -margin) >= needed
            })
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let shift = rank::estimate(ranks(statistics)).0;
        let by_ranks = [Side::More, Side::Less].map(|side| {
            let evidence = |null| rank::log_evidence(ranks(statistics), side, side.sign() * null);
            bound(-1.0, side.sign() * shift, needed.harm + FOR_RANKS, evidence)
        });
        let mut lower = by_ranks.into_iter().fold(0.0, f64::max);
        let (mut estimate, mut upper) = (0.0_f64, 0.0_f64);
        let for_edges = needed.harm + for_edges(statistics);
        for (edge, difference, _) in estimates(statistics) {
            estimate = estimate.max(difference.abs());
            for side in [Side::More, Side::Less] {
                let here = side.sign() * difference;
                let beyond = |null| evidence(statistics, edge, side, side.sign() * null);
                let within = |null| evidence(statistics, edge, side.other(), side.sign() * null);
                // Only what moves a bound is worth the search for it.
                if beyond(lower) >= for_edges {
                    lower = bound(lower, here, for_edges, beyond);
                }
                if within(upper) < needed.harmless {
                    upper = bound(1.0, here, needed.harmless, within);
                }
            }
        }
        let median = |arm| statistics.arm(arm).scores().quantile(0.5).unwrap_or(0.0);
        let (live, canary) = (median(Arm::Live), median(Arm::Canary));
        Difference { live, canary, estimate, lower, upper, detail: None }
    }
}

/// What was measured on scales that tell scores apart. The edges of several have the
/// same places: each stands for the same share of live's earlier scores.
fn scored(statistics: &Statistics) -> impl Iterator<Item = Measured<'_>> + Clone {
    statistics.measured().filter(|measured| !measured.reference.edges().is_empty())
}

/// How many edges are compared.
fn edges(statistics: &Statistics) -> usize {
    statistics.references().map(|reference| reference.edges().len()).max().unwrap_or(0)
}

fn towards(difference: f64) -> Side {
    if difference > 0.0 { Side::More } else { Side::Less }
}

fn ranks(statistics: &Statistics) -> impl Iterator<Item = Ranks<'_>> {
    scored(statistics).map(|Measured { reference, share, stage }| Ranks {
        share: share.probability(),
        ranks: reference.ranks(),
        live: stage.live.score_bins(),
        canary: stage.canary.score_bins(),
    })
}

/// What the edges need beside the signal's evidence: 1/4 of its budget is divided
/// among them and their two sides.
fn for_edges(statistics: &Statistics) -> f64 {
    (8.0 * edges(statistics) as f64).ln()
}

/// For each edge the difference of the shares at or below it, and about half the
/// square of its distance from nothing in standard errors.
fn estimates(statistics: &Statistics) -> impl Iterator<Item = (usize, f64, f64)> {
    let (mut sums, mut squares, mut information) = ([0.0; BINS], [0.0; BINS], 0.0);
    for Measured { reference, share, stage } in scored(statistics) {
        let (share, below) = (share.probability(), reference.below());
        for (arm, bins) in
            [(1.0 - share, stage.canary.score_bins()), (-share, stage.live.score_bins())]
        {
            let requests = bins.iter().sum::<u64>() as i64 as f64;
            information += requests * share * (1.0 - share);
            let mut events = 0;
            for (((sum, square), guess), bin) in
                sums.iter_mut().zip(&mut squares).zip(below).zip(bins)
            {
                events += bin;
                let events = events as i64 as f64;
                *sum += arm * (events - guess * requests);
                *square += arm * arm * (events * (1.0 - 2.0 * guess) + requests * guess * guess);
            }
        }
    }
    let over = |sum: f64, whole: f64| if whole > 0.0 { sum / whole } else { 0.0 };
    let estimates = sums.into_iter().zip(squares).take(edges(statistics)).enumerate();
    estimates.map(move |(edge, (sum, square))| {
        (edge, over(sum, information), over(sum * sum, 2.0 * square))
    })
}

/// The evidence that the shares at or below an edge differ by more, or by less,
/// than `null`.
fn evidence(statistics: &Statistics, edge: usize, side: Side, null: f64) -> f64 {
    let up_to = |bins: &[u64]| Tally {
        events: bins.iter().take(edge + 1).sum(),
        requests: bins.iter().sum(),
    };
    let tables = scored(statistics).map(|Measured { reference, share, stage }| Table {
        share: share.probability(),
        guess: reference.below()[edge],
        live: up_to(stage.live.score_bins()),
        canary: up_to(stage.canary.score_bins()),
    });
    events::log_evidence(tables, side, null, Prior::EVEN)
}
