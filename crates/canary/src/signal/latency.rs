//! Compares the arms' latency at a quantile.

use std::{
    collections::BTreeSet,
    f64::consts::{LN_2, LN_10},
};

use super::{Difference, Needed, Test};
use crate::{
    Statistics,
    evidence::{
        Side,
        events::{Table, Tally, ceiling, log_evidence},
        mixture::Prior,
        proportion,
    },
    statistics::{ArmStatistics, Measured, sketch},
};

/// Compares the arms' latency at a quantile.
///
/// A request of live is slow when it takes longer than `x`, live's quantile in the
/// reference. If the canary took `r` times as long as live, it would exceed `r x` as
/// often as live exceeds `x`. That is a hypothesis about the rate of an event, for every
/// `r` on the grid of the sketch, at whose edges the counts are exact. Slow answers carry
/// more information while they are the minority; the complementary event, fast answers,
/// does when both arms are slow, for example because the canary slows live down as well.
///
/// Hardly any request of live exceeds `x` if live's tail is narrower than a bin, or if
/// live has become faster. Then `x` carries no information about the quantile, and the
/// quantiles themselves are compared, by confidence sequences that do not depend on `x`
/// (Howard & Ramdas 2022). If live has become slower, `x` lies at a lower quantile, and
/// both tests must prove harmlessness.
#[derive(Debug)]
pub(super) struct Latency {
    /// The quantile, between 0 and 1.
    pub(super) quantile: f64,
}

/// Position of the reference's latency quantile in live's present distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Hardly any request of live exceeds it.
    Beyond,
    /// About as many requests exceed it as in the reference.
    AtQuantile,
    /// More requests exceed it: live has become slower.
    Within,
}

/// The bounds are searched within this number of bins on either side: ratios from about
/// 1/400 to 400.
const STEPS: i32 = 300;

/// Bonferroni correction for harmlessness, added to the threshold: its two tests have
/// half of the error budget each.
const EITHER_HARMLESS: f64 = LN_2;
/// Correction for harm proved by slow answers, which has 80 % of the error budget: `ln(1
/// / 0.8)`.
const HARM_BY_SLOW: f64 = 0.223_143_551_314_209_76;
/// Correction for harm proved by fast answers or by the quantiles, which have 10 % each.
const HARM_OTHERWISE: f64 = LN_10;

impl Latency {
    /// Whether the canary's quantile is proved to be more than `steps` bins above live's.
    fn is_more(&self, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let slow = || slower_than(statistics, steps);
        let fast = || slow().map(Table::complement);
        proved(slow, Side::More, needed + HARM_BY_SLOW)
            || proved(fast, Side::Less, needed + HARM_OTHERWISE)
            || self.reach(statistics) == Reach::Beyond
                && self.quantile_is(Side::More, statistics, steps, needed + HARM_OTHERWISE)
    }

    /// Whether the canary's quantile is proved to be less than `steps` bins above live's.
    fn is_less(&self, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let needed = needed + EITHER_HARMLESS;
        let by_slow = || proved(|| slower_than(statistics, steps), Side::Less, needed);
        let by_quantile = || self.quantile_is(Side::Less, statistics, steps, needed);
        match self.reach(statistics) {
            Reach::Beyond => by_quantile(),
            Reach::AtQuantile => by_slow(),
            // A comparison at a lower quantile does not bound the slowest answers.
            Reach::Within => by_slow() && by_quantile(),
        }
    }

    /// The position of the reference's quantile in live's present distribution.
    fn reach(&self, statistics: &Statistics) -> Reach {
        match slow(statistics).rate() / (1.0 - self.quantile) {
            ..0.5 => Reach::Beyond,
            0.5..=1.5 => Reach::AtQuantile,
            _ => Reach::Within,
        }
    }

    /// Whether the canary's quantile is proved to lie above (`More`) or below (`Less`)
    /// live's plus `steps` bins. Uses the present share only: requests of different
    /// shares come from different times.
    fn quantile_is(&self, side: Side, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let shares: BTreeSet<_> = statistics.stages().map(|(share, _)| share).collect();
        let Some(present) = shares.last() else { return false };
        let count = shares.len() as f64;
        // The k-th share has a part of 1 / k(k + 1) of the budget, and each arm's
        // quantile half of that.
        let needed = needed + (count * (count + 1.0)).ln() + LN_2;
        let now = || statistics.stages().filter(|(share, _)| share == present);
        let live =
            |side, bin| self.evidence(now().map(|(_, stage)| &stage.live), side, bin) >= needed;
        let bound = match side {
            Side::Less => highest(sketch::FIRST, sketch::LAST, |bin| live(Side::More, bin)),
            Side::More => {
                highest(-sketch::LAST, -sketch::FIRST, |bin| live(Side::Less, -bin)).map(|bin| -bin)
            }
        };
        let canary = |bin| self.evidence(now().map(|(_, stage)| &stage.canary), side, bin);
        bound.is_some_and(|bin| canary(bin + steps) >= needed)
    }

    /// The log evidence that the quantile of an arm lies above, or below, the upper edge
    /// of a bin.
    fn evidence<'s>(
        &self,
        arm: impl Iterator<Item = &'s ArmStatistics>,
        side: Side,
        bin: i32,
    ) -> f64 {
        let mut slower = Tally::default();
        arm.for_each(|replica| slower.add(replica.slower_than(bin)));
        proportion::log_evidence([(slower, 1.0 - self.quantile)].into_iter(), side)
    }
}

/// Counts of live's latencies above the reference's quantile, and of the canary's
/// latencies above the edge `steps` bins higher.
fn slower_than(statistics: &Statistics, steps: i32) -> impl Iterator<Item = Table> + Clone {
    statistics.measured().map(move |Measured { reference, share, stage }| Table {
        share: share.probability(),
        guess: 0.0,
        live: stage.live.slower_than(reference.slow_bin()),
        canary: stage.canary.slower_than(reference.slow_bin() + steps),
    })
}

/// Live's requests that exceeded the reference's quantile.
fn slow(statistics: &Statistics) -> Tally {
    let mut slow = Tally::default();
    slower_than(statistics, 0).for_each(|table| slow.add(table.live));
    slow
}

fn proved<T>(tables: impl Fn() -> T, side: Side, needed: f64) -> bool
where
    T: Iterator<Item = Table> + Clone,
{
    ceiling(tables(), side) >= needed
        && log_evidence(tables(), side, 0.0, Prior::MODERATE) >= needed
}

impl Test for Latency {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        let steps = sketch::steps(1.0 + tolerance).ceil() as i32;
        self.is_more(statistics, steps, needed)
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        let steps = sketch::steps(1.0 + margin).floor() as i32;
        self.is_less(statistics, steps, needed)
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let (mut live, mut canary) = (sketch::Sketch::default(), sketch::Sketch::default());
        for (_, stage) in statistics.stages() {
            crate::Merge::merge(&mut live, stage.live.latency());
            crate::Merge::merge(&mut canary, stage.canary.latency());
        }
        // The level of the compared quantile: that of the reference's latency in live's
        // present distribution.
        let level = match self.reach(statistics) {
            Reach::Beyond => self.quantile,
            Reach::AtQuantile | Reach::Within => 1.0 - slow(statistics).rate(),
        };
        let at = |sketch: &sketch::Sketch| sketch.quantile(level).unwrap_or(0.0);
        let (live, canary) = (at(&live), at(&canary));
        let more = |steps: i32| self.is_more(statistics, steps, needed.harm);
        let less = |steps: i32| self.is_less(statistics, -steps, needed.harmless);
        let longer = |steps: i32| sketch::edge(steps) - 1.0;
        Difference {
            live,
            canary,
            estimate: if live > 0.0 { canary / live - 1.0 } else { 0.0 },
            lower: highest(-STEPS, STEPS, more).map_or(-1.0, longer),
            upper: highest(-STEPS, STEPS, less).map_or(f64::INFINITY, |steps| longer(-steps)),
            detail: None,
        }
    }
}

/// The largest number from `first` to `last` for which the monotone predicate `holds` is
/// true; `None` if it is false for `first`.
fn highest(first: i32, last: i32, holds: impl Fn(i32) -> bool) -> Option<i32> {
    if !holds(first) {
        return None;
    }
    let (mut held, mut failed) = (first, last + 1);
    while failed - held > 1 {
        let middle = i32::midpoint(held, failed);
        if holds(middle) { held = middle } else { failed = middle }
    }
    Some(held)
}
