//! The latency at a quantile: how much longer the canary takes.

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

/// The latency at a quantile.
///
/// Live is slow when it takes longer than `x`, its quantile as it was before. If
/// the canary took `r` times as long as live, it would take longer than `r x` just
/// as often, and be as fast just as often. Those are hypotheses about events, for
/// every `r` on the grid of the sketch, whose edges the counts are exact for. Slow
/// answers tell more as long as they are the fewer; fast ones when both arms are
/// slow, as where the canary holds up live as well.
///
/// Hardly anything of live lies above `x` where its tail is narrower than a bin, or
/// where it has become faster. Then `x` says nothing of the quantile, and the
/// quantiles themselves are compared, by confidence sequences that ask nothing
/// of `x` (Howard & Ramdas 2022). Where live has become slower, `x` lies at a lower
/// quantile, and harmlessness has to be proved by both.
#[derive(Debug)]
pub(super) struct Latency {
    /// Which quantile, between 0 and 1.
    pub(super) quantile: f64,
}

/// Where live's quantile of before lies now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Hardly anything of live lies above it.
    Beyond,
    /// About as much as should.
    AtQuantile,
    /// More than should: live has become slower.
    Within,
}

/// The ratios between which the bounds are looked for: about 1/400 and 400.
const STEPS: i32 = 300;

/// What a proof needs beside the signal's evidence, since the ways to it share the
/// budget: harmlessness has two, with half of it each.
const EITHER_HARMLESS: f64 = LN_2;
/// Harm by slow answers has 80 % of it: `ln(1 / 0.8)`.
const HARM_BY_SLOW: f64 = 0.223_143_551_314_209_76;
/// By fast ones, or by the quantiles, 10 % each.
const HARM_OTHERWISE: f64 = LN_10;

impl Latency {
    /// Whether the canary is proved to take longer than what lies `steps` bins above
    /// live.
    fn is_more(&self, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let slow = || slower_than(statistics, steps);
        let fast = || slow().map(Table::of_the_others);
        proved(slow, Side::More, needed + HARM_BY_SLOW)
            || proved(fast, Side::Less, needed + HARM_OTHERWISE)
            || self.reach(statistics) == Reach::Beyond
                && self.quantile_is(Side::More, statistics, steps, needed + HARM_OTHERWISE)
    }

    /// Whether it is proved to take less long.
    fn is_less(&self, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let needed = needed + EITHER_HARMLESS;
        let by_slow = || proved(|| slower_than(statistics, steps), Side::Less, needed);
        let by_quantile = || self.quantile_is(Side::Less, statistics, steps, needed);
        match self.reach(statistics) {
            Reach::Beyond => by_quantile(),
            Reach::AtQuantile => by_slow(),
            // A lower quantile says nothing of the slowest answers.
            Reach::Within => by_slow() && by_quantile(),
        }
    }

    /// Where live's quantile of before lies now.
    fn reach(&self, statistics: &Statistics) -> Reach {
        match slow(statistics).rate() / (1.0 - self.quantile) {
            ..0.5 => Reach::Beyond,
            0.5..=1.5 => Reach::AtQuantile,
            _ => Reach::Within,
        }
    }

    /// Whether the quantile is proved to be higher, or lower, than what lies `steps`
    /// bins above live's, while the canary has had its present share: over several
    /// shares, the arms' requests are not of the same times.
    fn quantile_is(&self, side: Side, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let shares: BTreeSet<_> = statistics.stages().map(|(share, _)| share).collect();
        let Some(present) = shares.last() else { return false };
        let count = shares.len() as f64;
        // The k-th share has a part of 1 / k(k + 1), and each quantile half of that.
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

    /// The evidence that the quantile of an arm lies above, or below, the upper edge
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

/// How often live took longer than it did before, and the canary than what lies
/// `steps` bins above that.
fn slower_than(statistics: &Statistics, steps: i32) -> impl Iterator<Item = Table> + Clone {
    statistics.measured().map(move |Measured { reference, share, stage }| Table {
        share: share.probability(),
        guess: 0.0,
        live: stage.live.slower_than(reference.slow_bin()),
        canary: stage.canary.slower_than(reference.slow_bin() + steps),
    })
}

/// Live's requests that took longer than it did before.
fn slow(statistics: &Statistics) -> Tally {
    let mut slow = Tally::default();
    slower_than(statistics, 0).for_each(|table| slow.add(table.live));
    slow
}

fn proved<T>(tables: impl Fn() -> T, side: Side, needed: f64) -> bool
where
    T: Iterator<Item = Table> + Clone,
{
    ceiling(tables(), side) >= needed && log_evidence(tables(), side, 0.0, Prior::SOME) >= needed
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
        // The quantile that is compared: the one where live's of before lies now.
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

/// The highest number from `first` to `last` for which something holds that holds up
/// to there; `None` if it holds nowhere.
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
