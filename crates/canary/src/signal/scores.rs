//! The distribution of the scores: distance between the canary's and live's.

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

/// The Kolmogorov-Smirnov distance between the arms' scores, over the edges of the
/// reference's bins.
///
/// Two tests bound it from below. One compares the shares at or below each edge, and
/// detects any change of shape. The other compares the mean ranks, as the Mann-Whitney
/// test does. The difference of the mean ranks is an average of the differences at the
/// edges, so it bounds the largest one too, and it detects a shift with fewer requests.
#[derive(Debug)]
pub(super) struct Scores;

/// Bonferroni correction of the rank test, added to the threshold: it has 3/4 of the
/// signal's error budget, for two sides.
const RANKS_CORRECTION: f64 = LN_2 + 0.287_682_072_451_780_9;

/// The evidence is computed only when its expectation is at least this part of the
/// threshold. Skipping a look never invalidates a sequential test.
const NEAR: f64 = 0.7;

impl Test for Scores {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        let for_ranks = needed + RANKS_CORRECTION;
        let (shift, expected) = rank::estimate(ranks(statistics));
        let side = towards(shift);
        if expected >= NEAR * for_ranks
            && rank::log_evidence(ranks(statistics), side, side.sign() * tolerance) >= for_ranks
        {
            return true;
        }
        let for_edges = needed + edges_correction(statistics);
        estimates(statistics).any(|(edge, difference, expected)| {
            let side = towards(difference);
            expected >= NEAR * for_edges
                && evidence(statistics, edge, side, side.sign() * tolerance) >= for_edges
        })
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        // Without edges nothing can be proved.
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
            bound(-1.0, side.sign() * shift, needed.harm + RANKS_CORRECTION, evidence)
        });
        let mut lower = by_ranks.into_iter().fold(0.0, f64::max);
        let (mut estimate, mut upper) = (0.0_f64, 0.0_f64);
        let for_edges = needed.harm + edges_correction(statistics);
        for (edge, difference, _) in estimates(statistics) {
            estimate = estimate.max(difference.abs());
            for side in [Side::More, Side::Less] {
                let here = side.sign() * difference;
                let beyond = |null| evidence(statistics, edge, side, side.sign() * null);
                let within = |null| evidence(statistics, edge, side.other(), side.sign() * null);
                // Searches a bound only where this edge would move it.
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

/// Stages whose reference has score bins. The edges of several references correspond: the
/// same edge stands for the same share of live's earlier scores.
fn scored(statistics: &Statistics) -> impl Iterator<Item = Measured<'_>> + Clone {
    statistics.measured().filter(|measured| !measured.reference.edges().is_empty())
}

/// Number of edges that are compared.
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

/// Bonferroni correction of the edge tests, added to the threshold: they have 1/4 of the
/// signal's error budget, divided among the edges and two sides.
fn edges_correction(statistics: &Statistics) -> f64 {
    (8.0 * edges(statistics) as f64).ln()
}

/// For each edge the difference of the shares at or below it, and the expected log
/// evidence against 0: about half the square of the difference in standard errors.
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

/// The log evidence that the difference of the shares at or below an edge lies above, or
/// below, `null`.
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
    events::log_evidence(tables, side, null, Prior::UNIFORM)
}
