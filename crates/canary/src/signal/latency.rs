//! Compares the arms' latency at a quantile.

use outrigger_core::Arm;

use super::{Difference, Needed, Test};
use crate::{
    Statistics,
    evidence::{
        Side,
        events::{Table, Tally, ceiling, log_evidence},
        mixture::Prior,
    },
    statistics::{ArmStatistics, Measured, sketch},
};

/// Compares the arms' latency at a quantile.
///
/// A request is slow when it takes longer than the threshold, which follows live's
/// quantile. If the canary took `r` times as long as live, it would exceed `r` times the
/// threshold as often as live exceeds the threshold. That is a hypothesis about the rate
/// of an event, for every `r` on the grid of the sketch, at whose edges the counts are
/// exact.
///
/// A canary that slows live down as well moves the threshold. Its fast answers are
/// therefore compared with live's too: those within live's quantile before the split.
#[derive(Debug)]
pub(super) struct Latency {
    /// The quantile, between 0 and 1.
    pub(super) quantile: f64,
}

/// The bounds are searched within this number of bins on either side: ratios from about
/// 1/400 to 400.
const STEPS: i32 = 300;

/// Bonferroni correction for harm proved by slow answers, added to the evidence that is
/// needed: it has 95 % of the signal's error budget: `ln(1 / 0.95)`.
const HARM_BY_SLOW: f64 = 0.051_293_294_387_550_58;
/// Correction for harm proved by fast answers, which has the other 5 %: `ln(1 / 0.05)`.
const HARM_BY_FAST: f64 = 2.995_732_273_553_991;

/// Nothing is proved harmless while most of live's answers take longer than this multiple
/// of live's quantile before the split.
const OVERLOADED: f64 = 10.0;

impl Latency {
    /// True if the canary is proved to take longer than live by more than `steps` bins.
    fn is_more(statistics: &Statistics, steps: i32, needed: f64) -> bool {
        let slow = || above_threshold(statistics, steps);
        let fast = || above_former(statistics, steps).map(Table::complement);
        proved(slow, Side::More, needed + HARM_BY_SLOW)
            || proved(fast, Side::Less, needed + HARM_BY_FAST)
    }

    /// True if the canary is proved to take longer than live by less than `steps` bins.
    fn is_less(statistics: &Statistics, steps: i32, needed: f64) -> bool {
        proved(|| above_threshold(statistics, steps), Side::Less, needed)
            && !is_overloaded(statistics)
    }
}

/// Counts of live's latencies above the threshold, and of the canary's that are higher by
/// more than `steps` bins.
fn above_threshold(statistics: &Statistics, steps: i32) -> impl Iterator<Item = Table> + Clone {
    tables(statistics, |_, arm, steps| arm.above_threshold(steps), steps)
}

/// The same for live's quantile before the split in place of the threshold.
fn above_former(statistics: &Statistics, steps: i32) -> impl Iterator<Item = Table> + Clone {
    tables(statistics, |former, arm, steps| arm.slower_than(former + steps), steps)
}

/// Counts of live's requests with 0 and of the canary's with `steps`. `tally` also gets
/// the bin of live's quantile before the split.
fn tables<'s>(
    statistics: &'s Statistics,
    tally: fn(i32, &ArmStatistics, i32) -> Tally,
    steps: i32,
) -> impl Iterator<Item = Table> + Clone + use<'s> {
    statistics.measured().map(move |Measured { reference, share, stage }| Table {
        share: share.probability(),
        guess: 0.0,
        live: tally(reference.slow_bin(), &stage.live, 0),
        canary: tally(reference.slow_bin(), &stage.canary, steps),
    })
}

/// True if most of live's answers take far longer than before the split. The canary may be
/// the cause even if both arms are alike.
fn is_overloaded(statistics: &Statistics) -> bool {
    let steps = sketch::steps(OVERLOADED).ceil() as i32;
    let mut slower = Tally::default();
    for Measured { reference, stage, .. } in statistics.measured() {
        slower.add(stage.live.slower_than(reference.slow_bin() + steps));
    }
    slower.rate() > 0.5
}

/// The estimated increase: the canary exceeds so much more than the threshold as often as
/// live exceeds the threshold. 0 before the canary's first request.
fn estimate(statistics: &Statistics) -> f64 {
    if statistics.requests().1 == 0 {
        return 0.0;
    }
    let more = |steps| {
        let (mut live, mut canary) = (Tally::default(), Tally::default());
        for table in above_threshold(statistics, steps) {
            live.add(table.live);
            canary.add(table.canary);
        }
        canary.rate() > live.rate()
    };
    highest(-STEPS, STEPS, more).map_or(increase(-STEPS), |steps| increase(steps + 1))
}

/// The relative increase of a latency that is higher by this number of bins.
fn increase(steps: i32) -> f64 {
    sketch::edge(steps) - 1.0
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
        Self::is_more(statistics, steps, needed)
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        let steps = sketch::steps(1.0 + margin).floor() as i32;
        Self::is_less(statistics, steps, needed)
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let figure = |arm| statistics.arm(arm).latency().quantile(self.quantile).unwrap_or(0.0);
        let more = |steps: i32| Self::is_more(statistics, steps, needed.harm);
        let less = |steps: i32| Self::is_less(statistics, -steps, needed.harmless);
        Difference {
            live: figure(Arm::Live),
            canary: figure(Arm::Canary),
            estimate: estimate(statistics),
            lower: highest(-STEPS, STEPS, more).map_or(-1.0, increase),
            upper: highest(-STEPS, STEPS, less).map_or(f64::INFINITY, |steps| increase(-steps)),
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

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{Observation, Outcome, Reference, Share};

    const SHARE: f64 = 0.3;
    const REQUESTS: u32 = 12;

    /// The statistics of requests with these latencies. Bit `n` of `assigned` is 1 if
    /// request `n` was the canary's.
    fn statistics(latencies: &[Duration], quantile: f64, assigned: u32) -> Statistics {
        let at =
            |arm, latency| Observation { arm, latency: Some(latency), outcome: Outcome::Empty };
        let sample = [at(Arm::Live, Duration::from_millis(20))];
        let mut statistics = Statistics::new(Arc::new(Reference::new(&sample, quantile)));
        for (request, latency) in latencies.iter().enumerate() {
            let arm = if assigned >> request & 1 == 1 { Arm::Canary } else { Arm::Live };
            statistics.record(Share::new(SHARE).expect("a share"), &at(arm, *latency));
        }
        statistics
    }

    /// The mean wealth over all assignments of the requests to the arms, weighted by
    /// their probabilities.
    fn mean_wealth(latencies: &[Duration], quantile: f64, side: Side) -> f64 {
        let assignments = (0..1 << REQUESTS).map(|assigned: u32| {
            let canary = assigned.count_ones() as i32;
            let probability =
                SHARE.powi(canary) * (1.0 - SHARE).powi(latencies.len() as i32 - canary);
            let statistics = statistics(latencies, quantile, assigned);
            let tables = above_threshold(&statistics, 0);
            probability * log_evidence(tables, side, 0.0, Prior::MODERATE).exp()
        });
        assignments.sum()
    }

    #[test]
    fn a_threshold_that_follows_live_leaves_every_bet_fair_or_worse() {
        // Latencies near the threshold, which decides about most of them, and a shift of
        // live after which requests are left out.
        let near = |request: u32| 20.0 + f64::from(request * 5 % 7) / 5.0;
        let shift = |request: u32| if request < 4 { 20.0 } else { 30.0 };
        for latency in [&near as &dyn Fn(u32) -> f64, &shift] {
            let latencies: Vec<_> = (0..REQUESTS)
                .map(|request| Duration::from_secs_f64(latency(request) / 1e3))
                .collect();
            for side in [Side::More, Side::Less] {
                let mean = mean_wealth(&latencies, 0.99, side);
                assert!(mean <= 1.0 + 1e-9, "{mean}, {side:?}");
                assert!(mean > 0.3, "{mean}: nothing is at stake, {side:?}");
            }
        }
    }
}
