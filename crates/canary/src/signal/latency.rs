//! The latency at a quantile: how much longer the canary takes.

use super::{Difference, Needed, Test};
use crate::{
    Statistics,
    evidence::{
        Side,
        events::{Table, ceiling, log_evidence},
        mixture::Prior,
    },
    statistics::sketch,
};

/// The latency at a quantile.
///
/// Live is slow when it takes longer than `x`, its quantile as it was before. If
/// the canary took `r` times as long as live, it would take longer than `r x` just
/// as often. That is a hypothesis about events, for every `r` on the grid of the
/// sketch, whose edges the counts are exact for.
#[derive(Debug)]
pub(super) struct Latency;

/// The ratios between which the bounds are looked for: about 1/400 and 400.
const STEPS: i32 = 300;

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
}

impl Test for Latency {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        let steps = sketch::steps(1.0 + tolerance).ceil() as i32;
        Self::proved(statistics, Side::More, steps, needed)
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        let steps = sketch::steps(1.0 + margin).floor() as i32;
        Self::proved(statistics, Side::Less, steps, needed)
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let (mut live, mut canary) = (sketch::Sketch::default(), sketch::Sketch::default());
        for (_, stage) in statistics.stages() {
            crate::Merge::merge(&mut live, stage.live.latency());
            crate::Merge::merge(&mut canary, stage.canary.latency());
        }
        // The level at which the reference's quantile lies now.
        let slow = live.above(statistics.reference().slow_bin()) as f64;
        let level = 1.0 - slow / live.count().max(1) as f64;
        let at = |sketch: &sketch::Sketch| sketch.quantile(level).unwrap_or(0.0);
        let (live, canary) = (at(&live), at(&canary));
        let more = |steps: i32| Self::proved(statistics, Side::More, steps, needed.harm);
        let less = |steps: i32| Self::proved(statistics, Side::Less, steps, needed.harmless);
        let longer = |steps: i32| sketch::edge(steps) - 1.0;
        Difference {
            live,
            canary,
            estimate: if live > 0.0 { canary / live - 1.0 } else { 0.0 },
            lower: longest(more).map_or(-1.0, longer),
            upper: longest(|steps| less(-steps)).map_or(f64::INFINITY, |steps| longer(-steps)),
            detail: None,
        }
    }
}

/// The largest number of steps for which `proved` holds, which it does up to
/// there; `None` if it holds nowhere.
fn longest(proved: impl Fn(i32) -> bool) -> Option<i32> {
    if !proved(-STEPS) {
        return None;
    }
    let (mut holds, mut fails) = (-STEPS, STEPS + 1);
    while fails - holds > 1 {
        let middle = i32::midpoint(holds, fails);
        if proved(middle) { holds = middle } else { fails = middle }
    }
    Some(holds)
}
