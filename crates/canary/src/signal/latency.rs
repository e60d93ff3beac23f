//! The latency at a quantile: how much longer the canary takes.

use std::f64::consts::LN_2;

use super::{Difference, Needed, Test};
use crate::{
    Statistics,
    evidence::{
        Side,
        events::{Table, ceiling, log_evidence},
        mixture::Prior,
        proportion,
    },
    statistics::{ArmStatistics, sketch},
};

/// The latency at a quantile.
///
/// Live is slow when it takes longer than `x`, its quantile as it was before. If
/// the canary took `r` times as long as live, it would take longer than `r x` just
/// as often. That is a hypothesis about events, for every `r` on the grid of the
/// sketch, whose edges the counts are exact for.
///
/// Where hardly anything of live lies above `x`, because its tail is narrower than a
/// bin or because it has become faster, the canary cannot lie there less often. So
/// harmlessness may be proved in another way as well: by confidence sequences of the
/// two quantiles themselves (Howard & Ramdas 2022), which ask nothing of `x`.
#[derive(Debug)]
pub(super) struct Latency {
    /// Which quantile, between 0 and 1.
    pub(super) quantile: f64,
}

/// The ratios between which the bounds are looked for: about 1/400 and 400.
const STEPS: i32 = 300;

/// What each of the two ways to prove harmlessness needs beside the signal's
/// evidence: they share its budget.
const FOR_EITHER: f64 = LN_2;

impl Latency {
    /// Whether the canary is proved to take longer, or less long, than what lies
    /// `steps` bins above live.
    fn proved(statistics: &Statistics, side: Side, steps: i32, needed: f64) -> bool {
        let slow = statistics.reference().slow_bin();
        let tables = || {
            statistics.stages().map(|(share, stage)| Table {
                share: share.probability(),
                guess: 0.0,
                live: stage.live.slower_than(slow),
                canary: stage.canary.slower_than(slow + steps),
            })
        };
        ceiling(tables(), side) >= needed
            && log_evidence(tables(), side, 0.0, Prior::SOME) >= needed
    }

    /// Whether the canary is proved to take less long than what lies `steps` bins
    /// above live, in either way.
    fn is_less(&self, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let needed = needed + FOR_EITHER;
        Self::proved(statistics, Side::Less, steps, needed)
            || self.quantile_is_less(statistics, steps, needed)
    }

    /// The same by the quantiles themselves, while the canary has had its present
    /// share: over several shares, the arms' requests are not of the same times.
    fn quantile_is_less(&self, statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let count = statistics.stages().count() as f64;
        let Some((_, stage)) = statistics.stages().last() else { return false };
        // The k-th share has a part of 1 / k(k + 1), and each quantile half of that.
        let needed = needed + (count * (count + 1.0)).ln() + LN_2;
        let exceeds = |bin| self.evidence(&stage.live, Side::More, bin) >= needed;
        let live = highest(sketch::FIRST, sketch::LAST, exceeds);
        live.is_some_and(|bin| self.evidence(&stage.canary, Side::Less, bin + steps) >= needed)
    }

    /// The evidence that the quantile of an arm lies above, or below, the upper edge
    /// of a bin.
    fn evidence(&self, arm: &ArmStatistics, side: Side, bin: i32) -> f64 {
        let slower = [(arm.slower_than(bin), 1.0 - self.quantile)];
        proportion::log_evidence(slower.into_iter(), side)
    }

    /// The quantile at which the reference's lies now; the one that is watched, if
    /// hardly anything lies above that.
    fn level(&self, live: &sketch::Sketch, slow: i32) -> f64 {
        let slow = live.above(slow) as f64 / live.count().max(1) as f64;
        if slow < (1.0 - self.quantile) / 2.0 { self.quantile } else { 1.0 - slow }
    }
}

impl Test for Latency {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        let steps = sketch::steps(1.0 + tolerance).ceil() as i32;
        Self::proved(statistics, Side::More, steps, needed)
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
        let level = self.level(&live, statistics.reference().slow_bin());
        let at = |sketch: &sketch::Sketch| sketch.quantile(level).unwrap_or(0.0);
        let (live, canary) = (at(&live), at(&canary));
        let more = |steps: i32| Self::proved(statistics, Side::More, steps, needed.harm);
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
